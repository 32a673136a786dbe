// One sale: the interval and the class, what is left, when it opens, and the way on.
import { get, now } from "./api.js";
import { t } from "./text.js";
import { $, countdown, dayTime, explain, fare, go, h, hereTime, invitation, journey, load, money, poll, query, roomOf, saleOf, show, waitable } from "./ui.js";

const form = $("#choose");
let sale;
let lefts = new Map(); // class → seats left for the interval
let picked = query.get("class"); // what the person chose; null: the page chooses

let asked = 0;
async function classes() {
  const mine = ++asked;
  const from = form.elements.from.value;
  const to = form.elements.to.value;
  let map = null;
  try {
    if (!fare(sale, sale.classes[0], from, to)) sale = await saleOf(sale.sale, from, to);
    map = await get("seat-map", { sale: sale.sale, from, to }, { open: true });
  } catch (problem) {
    if (!problem.lost && problem.code !== "not-open-yet" && problem.code !== "sale-closed") explain(problem, form);
  }
  if (mine !== asked) return;
  lefts = new Map((map?.classes ?? []).map((one) => [one.class, one.left]));
  const chosen = sale.classes.find((one) => one.class === picked) ?? sale.classes.find((one) => lefts.get(one.class) > 0) ?? sale.classes[0];
  show($("#classes"), sale.classes.map((one) => {
    const left = lefts.get(one.class);
    const price = fare(sale, one, from, to);
    const input = h("input", { type: "radio", name: "class", value: one.class, required: true });
    input.checked = one === chosen;
    return h("label.check", input, h("span", h("b", one.title), price ? ` · ${money(price)}` : "", " ",
      h("span.soft", left === undefined ? "" : left === 0 ? t("left.none") : t("left.some", { n: left }))));
  }));
  if (map?.stale) $("#classes").append(h("p.small.soft", t("map.stale")));
  wait();
}

/** Where the chosen class has nothing left: the way to standby. */
function wait() {
  const one = sale.classes.find((each) => each.class === form.elements.class.value);
  const none = lefts.get(one?.class) === 0 && waitable(sale, one);
  const values = { from: form.elements.from.value, to: form.elements.to.value, class: one?.class };
  const key = none ? JSON.stringify(values) : "";
  if ($("#wait").dataset.shown === key) return;
  $("#wait").dataset.shown = key;
  show($("#wait"), none ? invitation(sale, values) : null);
}

/** What can be done now: before opening one may still join the room. */
function state() {
  const text = $("#state");
  const on = $("#on");
  const opens = Date.parse(sale.opens_at);
  const over = ["closed", "cancelled"].includes(sale.state) || Date.parse(sale.closes_at) <= now();
  on.textContent = t(roomOf(sale) ? "sale.to_room" : "sale.on");
  if (over) {
    show(text, t(`state.sale.${sale.state === "cancelled" ? "cancelled" : "closed"}`));
    on.disabled = true;
  } else if (opens > now()) {
    const clock = h("span.clock");
    show(text, `${t("sale.opens_in")} `, clock, h("br"), h("span.soft.small", hereTime(sale.opens_at)));
    countdown(clock, opens, state);
    on.disabled = !roomOf(sale);
  } else if (sale.state === "paused") {
    show(text, t("state.sale.paused"));
    on.disabled = !roomOf(sale);
  } else if (sale.state === "draft") {
    show(text, t("state.sale.draft"));
    on.disabled = true;
  } else {
    show(text);
    on.disabled = false;
  }
}

form.addEventListener("change", (event) => {
  if (event.target.name !== "class") return classes();
  picked = event.target.value;
  wait();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const choice = { sale: sale.sale, from: form.elements.from.value, to: form.elements.to.value, class: form.elements.class.value };
  // Before joining opens the room page counts down; afterwards this click joins.
  if (roomOf(sale)) go("room", { ...choice, join: 1 });
  else go("seats", choice);
});

load(async () => {
  sale = await saleOf(query.get("sale"));
  $("#title").textContent = sale.title;
  document.title = `${sale.title} · Holdfast`;
  const train = sale.stops.length > 2 || sale.kind !== "show";
  document.querySelectorAll("[data-train]").forEach((one) => (one.hidden = !train));
  journey(form, sale, query.get("from"), query.get("to"));
  state();
  const first = sale.stops[0];
  const fact = (name, value) => value && [h("dt", t(name)), h("dd", value)];
  show($("#facts"), [
    fact("sale.kind", t(`kind.${sale.kind}`)),
    fact("sale.number", sale.number),
    fact("sale.starts", `${dayTime(first.departs ?? first.arrives, first.timezone)} (${first.name})`),
    fact("sale.opens", sale.opens_at && hereTime(sale.opens_at)),
    fact("sale.closes", sale.closes_at && hereTime(sale.closes_at)),
    fact("sale.limit", sale.booking_limit && t("sale.limit_text", { n: sale.booking_limit })),
  ].flat());
  if (train && sale.stops.length > 2) {
    $("#stops").hidden = false;
    show($("#stops tbody"), sale.stops.map((stop) => h("tr", h("td", stop.name, stop.board === "request" || stop.alight === "request" ? h("span.soft.small", ` ${t("sale.request")}`) : ""),
      h("td", dayTime(stop.arrives, stop.timezone)), h("td", dayTime(stop.departs, stop.timezone)))));
  }
  await classes();
  poll(async () => {
    if (document.visibilityState !== "visible") return 15_000;
    await classes();
    return 15_000;
  });
});
