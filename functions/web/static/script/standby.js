// Joining standby: what one waits for, who travels, and the sum to be reserved at the gateway.
import { account, get, keep, now, place, post } from "./api.js";
import { t } from "./text.js";
import {
  $, busy, contactIn, countdown, fare, gatewayChoice, go, h, hereTime, link, load, money, nameFields, namesIn, notice, poll, query, roomOf, saleHead, saleOf,
  say, show, signedIn, waitable,
} from "./ui.js";

const form = $("#form");
const choice = { from: query.get("from") ?? undefined, to: query.get("to") ?? undefined };
let sale, room, admit;
let ranked = [];        // the numbered classes, those one likes best first
let wanted = new Set(); // classes one waits for
let lefts = new Map();  // class → seats the open sale can still give

const quantity = () => Number(form.elements.quantity.value) || 1;
/** onSale says whether the open sale can give the seats now: nobody waits for those. */
const onSale = (one) => (lefts.get(one.class) ?? 0) >= quantity();
const chosen = () => ranked.filter((one) => wanted.has(one.class) && !onSale(one));
const seatsLink = (one) => link("seats", { sale: sale.sale, ...choice, class: one.class, quantity: quantity() });

/** The classes in order of liking; one with seats is bought, not waited for. */
function classes() {
  const focused = document.activeElement?.dataset?.up;
  const mine = chosen();
  show($("#classes"), ranked.map((one) => {
    const input = h("input", { type: "checkbox", name: "class", value: one.class, "data-field": `classes[${mine.indexOf(one)}]`, disabled: onSale(one) });
    input.checked = mine.includes(one);
    const price = fare(sale, one, choice.from, choice.to);
    const up = mine.indexOf(one) > 0 && h("button.second.up", {
      type: "button", "data-up": one.class, "aria-label": t("standby.up", { name: one.title }), click: () => prefer(one),
    }, "↑");
    return h("li", h("label.check", input, h("span", h("b", one.title), price ? ` · ${money(price)}` : "",
      onSale(one) ? [" ", h("a", { href: seatsLink(one) }, t("standby.buy", { n: lefts.get(one.class) }))] : "")), up);
  }));
  if (focused) [...document.querySelectorAll("[data-up]")].find((each) => each.dataset.up === focused)?.focus();
  const price = reserved();
  show($("#price"), price ? [t("standby.reserved"), " ", h("b", money(price))] : "");
  $("#join").disabled = mine.length === 0;
  $("#together").hidden = quantity() < 2;
}

/** Moves a class before the next better one that is wanted too. */
function prefer(one) {
  const before = chosen()[chosen().indexOf(one) - 1];
  ranked = ranked.filter((each) => each !== one);
  ranked.splice(ranked.indexOf(before), 0, one);
  classes();
  if (!document.activeElement?.dataset?.up) form.querySelector(`input[value="${CSS.escape(one.class)}"]`)?.focus();
  say(t("standby.now_first", { names: chosen().map((each) => each.title).join(", ") }));
}

/** The dearest class for the whole party: the most that can be charged. */
function reserved() {
  const prices = chosen().map((one) => fare(sale, one, choice.from, choice.to)).filter(Boolean);
  if (prices.length === 0) return null;
  return { ...prices[0], amount: Math.max(...prices.map((price) => price.amount)) * quantity() };
}

const names = () => show($("#passengers"), nameFields(quantity(), { names: namesIn($("#passengers")), required: sale.kind === "train" }));

/** A moment as a field of local time has it. */
const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

let shown = "";
async function refresh() {
  try {
    const map = await get("seat-map", { sale: sale.sale, ...choice }, { open: true });
    lefts = new Map(map.classes.map((each) => [each.class, each.left]));
  } catch (problem) {
    if (!problem.code) throw problem;
    return Math.max(10_000, problem.retryAfter * 1000);
  }
  const key = JSON.stringify([...lefts]);
  if (key !== shown) {
    shown = key;
    classes();
    seatsLeft();
  }
  return document.visibilityState === "visible" ? 5000 + Math.random() * 2000 : 30_000;
}

/** Seats may come back while one fills this in. */
function seatsLeft() {
  const one = ranked.find((each) => wanted.has(each.class) && onSale(each));
  show($("#seats-left"), one ? h("div.notice.good", h("p", t("standby.there_are", { name: one.title })), h("p.row", h("a.button", { href: seatsLink(one) }, t("room.to_seats")))) : null);
}

async function join(button) {
  await busy(button, async () => {
    const passengers = namesIn($("#passengers")).map((name) => ({ name }));
    const body = {
      sale: sale.sale, classes: chosen().map((one) => one.class), ...choice, quantity: quantity(),
      gateway: form.elements.gateway?.value || sale.gateways[0], contact: contactIn(form),
      // The order's id is not known yet: its page finds the newest of this sale.
      return_url: new URL(link("order", { sale: sale.sale }), location.href).href,
    };
    if (quantity() > 1) body.together = form.elements.together.checked;
    if (passengers.every((one) => one.name)) body.passengers = passengers;
    if (form.elements.until.value !== form.elements.until.defaultValue && form.elements.until.value) body.until = new Date(form.elements.until.value).toISOString();
    let order;
    try {
      order = await post("standby", body, { headers: admit ? { "Admit-Token": admit.admit_token } : {} });
    } catch (problem) {
      if (["admit-required", "admit-expired", "admit-other", "room-reset"].includes(problem.code)) {
        return notice(problem.message, "warn", h("p.row", h("a.button", { href: roomLink("again") }, t("room.rejoin"))));
      }
      if (problem.code === "wrong-state") {
        await refresh();
        return notice(problem.message, "warn", h("p.row", h("a.button", { href: link("seats", { sale: sale.sale, ...choice, quantity: quantity() }) }, t("room.to_seats"))));
      }
      if (problem.code === "limit-reached") return notice(problem.message, "warn", h("p.row", h("a", { href: link("bookings") }, t("nav.bookings"))));
      throw problem;
    }
    keep.set(`order:${sale.sale}`, order.order);
    keep.set(`authorise:${order.order}`, { redirect_url: order.authorise?.redirect_url });
    if (order.state === "authorising" && order.authorise?.redirect_url) location.assign(order.authorise.redirect_url);
    else go("order", { order: order.order });
  }, form);
}

const roomLink = (join) => link("room", { sale: sale.sale, ...choice, class: query.get("class"), quantity: query.get("quantity"), standby: 1, join });

form.addEventListener("change", (event) => {
  const { name, value, checked } = event.target;
  if (name === "class") wanted[checked ? "add" : "delete"](value);
  if (name === "quantity") names();
  if (name === "class" || name === "quantity") {
    classes();
    seatsLeft();
    if (name === "class") form.querySelector(`input[value="${CSS.escape(value)}"]`)?.focus();
  }
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  join($("#join"));
});

load(async () => {
  sale = await saleOf(query.get("sale"), query.get("from"), query.get("to"));
  if (!signedIn()) return;
  room = roomOf(sale);
  choice.from ??= sale.stops[0].id;
  choice.to ??= sale.stops.at(-1).id;
  show($("#head"), saleHead(sale, choice.from, choice.to));
  ranked = sale.classes.filter((one) => waitable(sale, one));
  if (ranked.length === 0) {
    form.hidden = true;
    return notice(t("standby.none"), "warn");
  }
  if (room) {
    const mine = place.get(room);
    if (!mine?.admit_token || Date.parse(mine.admit_expires_at) <= now()) return location.replace(roomLink(1));
    admit = mine;
    $("#admit").hidden = false;
    countdown($("#admit .clock"), Date.parse(mine.admit_expires_at), () => notice(t("seats.admit_over"), "warn", h("p.row", h("a.button", { href: roomLink("again") }, t("room.rejoin")))), { warn: 60_000 });
  }
  const first = ranked.find((one) => one.class === query.get("class")) ?? ranked[0];
  ranked = [first, ...ranked.filter((one) => one !== first)];
  wanted.add(first.class);
  const most = sale.booking_limit ?? 6;
  show(form.elements.quantity, Array.from({ length: most }, (_, i) => h("option", { value: i + 1 }, String(i + 1))));
  form.elements.quantity.value = Math.min(Number(query.get("quantity")) || 1, most);
  const until = form.elements.until;
  until.defaultValue = local(Date.parse(sale.closes_at));
  until.max = until.defaultValue;
  until.min = local(now());
  $("#until-hint").textContent = t("standby.until_hint", { time: hereTime(sale.closes_at) });
  form.elements.email.value = account.email();
  gatewayChoice($("#gateways"), sale.gateways ?? []);
  names();
  classes();
  poll(refresh);
});
