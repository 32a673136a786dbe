// Signing in with a code by mail.
import { account, post } from "./api.js";
import { t } from "./text.js";
import { $, busy, load, notice, query } from "./ui.js";

const mail = $("#mail");
const code = $("#code-form");
let email = "";

/** The way back: only a query of these pages. */
function back() {
  const next = query.get("next") ?? "";
  location.replace(/^\?page=[a-z]+(&|$)/.test(next) ? `web${next}` : "web?page=home");
}

async function send(button) {
  await busy(button, async () => {
    await post("sign-in", { email }, { keyed: false });
    mail.hidden = true;
    code.hidden = false;
    $("#sent").textContent = t("signin.sent", { email });
    $("#code").focus();
    // On the local platform mails are read at /dev/mail; elsewhere there is no such page.
    const dev = await fetch("/dev/mail", { headers: { Accept: "application/json" } }).catch(() => null);
    $("#dev").hidden = !dev?.ok;
  }, mail);
}

mail.addEventListener("submit", (event) => {
  event.preventDefault();
  email = $("#email").value.trim();
  send($("button", mail));
});
$("#other").addEventListener("click", () => {
  notice("");
  code.hidden = true;
  mail.hidden = false;
  $("#email").focus();
});
code.addEventListener("submit", (event) => {
  event.preventDefault();
  busy($("button", code), async () => {
    try {
      const answer = await post("sign-in", { email, code: $("#code").value.replace(/\s/g, "") }, { keyed: false });
      account.set(answer.account_token, answer.expires_at, email);
      back();
    } catch (problem) {
      if (problem.status !== 401) throw problem;
      notice(problem.message, "bad");
      $("#code").select();
    }
  }, code);
});
$("#token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  account.set($("#token").value.trim());
  if (account.token()) back();
  else notice(t("signin.token_bad"), "bad");
});

load(async () => {
  $("#email").value = account.email();
});
