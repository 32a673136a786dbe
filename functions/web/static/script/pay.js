// A held booking: the time left, who travels, and the payment. A payment that "failed" may still succeed at the
// bank, so the page goes on asking and says so.
import { get, keep, now, post } from "./api.js";
import { t } from "./text.js";
import { $, busy, clockTime, countdown, explain, gatewayChoice, h, load, money, nameFields, namesIn, notice, poll, query, saleHead, saleOf, say, show, signedIn } from "./ui.js";

const id = query.get("booking");
const form = $("#people");
let booking, sale, payment, stop;
let failedAt = 0;   // when "failed" was first seen, this device's clock
let endsShown = "";
const checking = 15_000; // how long another try is held back after "failed"

const kept = `payment:${id}`;

function timer() {
  const live = booking.state === "held";
  $("#timer").hidden = !live;
  if (!live) return stop?.();
  if (booking.ends_at === endsShown) return;
  endsShown = booking.ends_at;
  stop?.();
  stop = countdown($("#clock"), Date.parse(booking.ends_at), () => again?.(), { warn: 60_000 });
  const more = Date.parse(booking.may_extend_until) > Date.parse(booking.ends_at);
  $("#extend").textContent = more ? t("pay.extend", { time: clockTime(new Date(booking.may_extend_until).toISOString()) }) : "";
}

function people() {
  show($("#passengers"), nameFields(booking.quantity, { names: (booking.passengers ?? []).map((one) => one.name), seats: booking.seats, required: sale.kind === "train" }));
  gatewayChoice($("#gateways"), sale.gateways ?? []);
}

function status(title, text, ...does) {
  $("#status").hidden = false;
  if ($("#status-title").textContent !== title) $("#status-title").textContent = title;
  if ($("#status-text").textContent !== text) $("#status-text").textContent = text;
  show($("#status-does"), does);
}

const tryAgain = () => h("button", {
  type: "button",
  click: () => {
    keep.drop(kept);
    payment = null;
    failedAt = 0;
    render();
  },
}, t("pay.another"));

/** What the person sees follows the booking first, then the payment. */
function render() {
  timer();
  const open = booking.state === "held" && Date.parse(booking.ends_at) > now();
  if (booking.state === "booked") {
    keep.drop(kept);
    say(t("pay.done"));
    return location.replace(`web?${new URLSearchParams({ page: "booking", booking: id, new: 1 })}`);
  }
  form.hidden = !open || Boolean(payment);
  $("#status").hidden = true;
  if (payment?.state === "failed") {
    failedAt ||= Date.now();
    const wait = Date.now() - failedAt < checking;
    return status(t("pay.failed"), t("pay.checking"), open && !wait ? tryAgain() : null);
  }
  if (["refunded", "partly_refunded"].includes(payment?.state)) return status(t("pay.refunded"), t("pay.refunded_text"), findAnother());
  if (["released", "cancelled"].includes(booking.state)) return status(t(`state.booking.${booking.state}`), t("pay.let_gone"), findAnother());
  if (booking.state === "lost") return status(t("state.booking.lost"), t("pay.lost_text"), findAnother());
  if (!open) return status(t("state.booking.expired"), t(payment ? "pay.expired_paying" : "pay.expired_text"), payment ? null : findAnother());
  if (payment?.state === "succeeded") return status(t("pay.received"), t("pay.confirming"));
  if (payment) {
    return status(t("pay.pending"), t("pay.pending_text"),
      payment.gateway?.redirect_url ? h("a.button", { href: payment.gateway.redirect_url }, t("pay.to_gateway")) : null, tryAgainSoft());
  }
}

const tryAgainSoft = () => {
  const button = tryAgain();
  button.className = "second";
  return button;
};
const findAnother = () => h("a.button", { href: `web?${new URLSearchParams({ page: "sale", sale: booking.sale, from: booking.from ?? "", to: booking.to ?? "" })}` }, t("pay.find_another"));

let again;
async function round() {
  try {
    booking = await get("hold", { booking: id });
    if (payment?.payment) {
      const answer = await get("pay", { payment: payment.payment });
      payment = { ...payment, ...answer, gateway: { ...payment.gateway, ...answer.gateway } };
    }
    render();
  } catch (problem) {
    if (!problem.lost) {
      explain(problem);
      return null;
    }
    notice(problem.message, "warn");
    return Math.max(3000, problem.retryAfter * 1000);
  }
  if (["released", "cancelled", "lost"].includes(booking.state)) return null;
  if (!payment) return 10_000;
  return payment.state === "succeeded" ? 1000 : 2000;
}

async function pay(button) {
  await busy(button, async () => {
    const passengers = namesIn($("#passengers")).map((name) => ({ name }));
    const before = (booking.passengers ?? []).map((one) => one.name ?? "");
    if (passengers.every((one) => one.name) && passengers.some((one, i) => one.name !== before[i])) {
      booking = { ...booking, ...(await post("hold", { booking: id, passengers })) };
    }
    const gateway = form.elements.gateway?.value || sale.gateways[0];
    const back = new URL(`web?${new URLSearchParams({ page: "pay", booking: id })}`, location.href);
    payment = await post("pay", { booking: id, gateway, return_url: back.href });
    keep.set(kept, { payment: payment.payment, state: payment.state, gateway: payment.gateway });
    if (payment.ends_at) booking.ends_at = payment.ends_at;
    if (payment.gateway?.redirect_url) location.assign(payment.gateway.redirect_url);
    render();
    again();
  }, form);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  pay($("#pay"));
});
$("#let-go").addEventListener("click", () => busy($("#let-go"), async () => {
  if (!confirm(t("pay.let_go_sure"))) return;
  await post("release-event", { type: "ABANDON", booking: id });
  booking = await get("hold", { booking: id });
  render();
}));

load(async () => {
  if (!signedIn()) return;
  booking = await get("hold", { booking: id });
  sale = await saleOf(booking.sale);
  payment = keep.get(kept);
  const other = query.get("payment") ?? booking.payment;
  if (!payment && other) payment = { payment: other, state: "pending" };
  show($("#head"), saleHead(sale, booking.from, booking.to));
  const fact = (name, value) => value && [h("dt", t(name)), h("dd", value)];
  show($("#facts"), [
    fact("booking.locator", booking.locator),
    fact("booking.class", sale.classes.find((one) => one.class === booking.class)?.title ?? booking.class),
    fact(booking.seats?.length ? "booking.seats" : "booking.quantity", booking.seats?.length ? booking.seats.join(", ") : String(booking.quantity)),
    fact("booking.price", money(booking.price)),
  ].filter(Boolean).flat());
  $("#pay").textContent = t("pay.now", { price: money(booking.price) });
  people();
  render();
  again = poll(round);
});
