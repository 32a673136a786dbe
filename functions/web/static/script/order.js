// One standby order: where it stands, why somebody else got a seat first, and, without a reload, the seats it got.
import { get, keep, post } from "./api.js";
import { has, t } from "./text.js";
import {
  $, about, busy, explain, h, hereTime, historyLines, link, load, money, notice, poll, query, said, saleHead, saleOf, say, seatWords, show, signedIn,
} from "./ui.js";

const badges = { authorising: "warn", pending: "warn", matched: "good", booked: "good", cancelled: "bad", expired: "bad" };
const ended = ["booked", "cancelled", "expired"];
let id = query.get("order");
let order, sale, booking, again;
let lastState = "";

const set = (selector, text) => {
  const element = $(selector);
  if (element.textContent !== text) element.textContent = text;
};

/** What a position says: exact to 100, within the first 1,000, else an estimate, or nothing (DESIGN 8). */
function position() {
  const p = order.position;
  if (!p) return { text: t(order.state === "pending" ? "order.text.pending" : "order.unknown") };
  if (p.exact) return { label: t("room.your_place"), big: p.exact.toLocaleString(document.documentElement.lang), text: t("order.exact", { n: p.exact }) };
  if (p.within) return { text: t("order.within", { n: p.within }) };
  if (typeof p.wait_seconds === "number") return { text: t("order.wait", { time: about(p.wait_seconds) }) };
  return { text: t("order.no_estimate") };
}

/** The words for the order's state: a label, something large, a text, and a quieter one. */
function words() {
  const reason = order.reason ? said("why", order.reason) : "";
  switch (order.state) {
    case "queued":
    case "pending":
      return { ...position(), wait: t("order.by_itself") };
    case "booked": {
      const seats = booking?.seats?.length ? seatWords(sale, booking.class, booking.seats) : "";
      return { big: seats && seats[0].toLocaleUpperCase() + seats.slice(1), text: seats ? t("order.text.booked", { seats }) : t("order.text.booked_soon") };
    }
    case "matched":
      return { text: t("order.text.matched") };
    case "authorising":
      return { text: t("order.text.authorising"), wait: order.authorise_by ? t("order.authorise_by", { time: hereTime(order.authorise_by) }) : "" };
    case "cancelled":
      return order.reason === "left by its holder" ? { text: t("order.text.left") } : { text: t("order.text.cancelled"), wait: reason };
    case "expired":
      return { text: t("order.text.expired"), wait: order.reason === "no seat came free in time" ? "" : reason };
    default:
      return { text: t(`order.text.${order.state}`) };
  }
}

/** Live text changes only when its words do, so that a screen reader is not flooded. */
function render() {
  $("#state").className = `badge ${badges[order.state] ?? ""}`;
  set("#state", t(`state.order.${order.state}`));
  const { label = "", big = "", text, wait = "" } = words();
  set("#label", label);
  set("#big", big);
  $("#big").classList.toggle("words", order.state === "booked");
  set("#text", text);
  set("#wait", wait);
  const key = `${order.state} ${Boolean(booking)}`;
  if (key !== lastState) {
    show($("#does"), does());
    if (order.state !== "authorising") keep.drop(`authorise:${id}`);
    if (lastState && ["matched", "booked"].includes(order.state)) say(`${t("order.matched")}. ${text}`);
    document.title = `${["matched", "booked"].includes(order.state) ? t("order.tab") : t("order.title")} · Holdfast`;
    lastState = key;
  }
  facts();
  why();
  // A booking's words for these two would be wrong for an order.
  show($("#history"), historyLines(order.history?.map((one) => ["cancelled", "expired"].includes(one.what) ? { ...one, what: `order ${one.what}` } : one)));
}

function does() {
  const cancel = h("button.bad", { type: "button", click: () => $("#cancel").showModal() }, t("order.cancel"));
  switch (order.state) {
    case "authorising": {
      const pay = keep.get(`authorise:${id}`)?.redirect_url;
      return [pay ? h("a.button", { href: pay }, t("pay.to_gateway")) : null, cancel];
    }
    case "queued":
    case "pending":
      return [cancel];
    case "booked":
      return [h("a.button", { href: link("booking", { booking: order.booking, new: 1 }) }, t("order.to_booking"))];
    case "cancelled":
    case "expired":
      return [h("a.button", { href: link("sale", { sale: order.sale, from: order.from, to: order.to }) }, t("pay.find_another"))];
  }
  return [];
}

const title = (name) => sale.classes.find((one) => one.class === name)?.title ?? name;

function facts() {
  const fact = (name, value) => value && [h("dt", t(name)), h("dd", value)];
  const sum = { authorising: "order.at_most", booked: "booking.price", cancelled: "", expired: "" }[order.state] ?? "order.reserved";
  show($("#facts"), [
    fact("order.classes", order.classes.map(title).join(", ")),
    fact("order.quantity", t("standby.seats", { n: order.quantity }) + (order.together && order.quantity > 1 ? `, ${t("seats.together")}` : "")),
    fact("order.until", !ended.includes(order.state) && hereTime(order.until)),
    sum && fact(sum, money(order.price)),
    fact("booking.passengers", (order.passengers ?? []).map((one) => one.name).filter(Boolean).join(", ")),
    fact("booking.contact", [order.contact?.email, order.contact?.phone].filter(Boolean).join(", ")),
  ].filter(Boolean).flat());
}

const stop = (name) => sale.stops.find((one) => one.id === name)?.name ?? name;
/** An interval by its stops; a show has one, which needs no words. */
const way = (one) => sale.kind === "show" ? "" : t("order.way", { from: stop(one.from), to: stop(one.to) });

/** Why the last release passed the order by: what came free, why it went elsewhere, and to whom. */
function why() {
  const w = order.why;
  $("#why").hidden = !w || !["queued", "pending"].includes(order.state);
  if ($("#why").hidden) return;
  const key = JSON.stringify(w);
  if ($("#why").dataset.shown === key) return;
  $("#why").dataset.shown = key;
  const reason = `order.reason.${w.reason}`;
  const freed = w.freed && (w.freed.from !== w.from || w.freed.to !== w.to) ? ` ${t("order.freed", { way: way(w.freed) })}` : "";
  $("#why h2").textContent = t(w.reason === "same-queue" || w.reason === "sale" ? "order.why_last" : "order.why");
  show($("#why-text"), [
    h("p", t("order.last", { class: title(w.class), time: hereTime(w.at), event: has(`order.event.${w.event}`) ? t(`order.event.${w.event}`) : w.event }), way(w) ? [freed, ` ${t("order.free", { way: way(w) })}`] : ""),
    h("p", h("b", has(reason) ? t(reason, { n: order.quantity }) : order.ahead_explained ?? "")),
    w.served?.length ? h("p.small", t("order.went_to"), " ", w.served.map((one) => [t("standby.seats", { n: one.quantity }), way(one)].filter(Boolean).join(", ")).join("; ")) : null,
  ]);
}

async function read() {
  order = await get("standby", { order: id });
  sale ??= await saleOf(order.sale);
  if (order.state === "booked" && !booking) booking = await get("hold", { booking: order.booking });
  show($("#head"), saleHead(sale, order.from, order.to));
  render();
}

async function round() {
  try {
    await read();
    if ($("#notice .warn")) notice("");
  } catch (problem) {
    if (!problem.lost) {
      explain(problem);
      return null;
    }
    notice(problem.message, "warn");
    return Math.max(3000, problem.retryAfter * 1000) * (0.9 + Math.random() * 0.4);
  }
  if (ended.includes(order.state)) return null;
  const soon = ["authorising", "matched", "cancelling"].includes(order.state);
  // Positions are some seconds old in every replica, so asking more often would tell nothing.
  const wait = document.visibilityState !== "visible" ? 30_000 : order.poll_after_ms ?? (soon ? 1500 : 5000);
  return Math.max(1000, wait) * (0.9 + Math.random() * 0.2);
}

$("#cancel-no").addEventListener("click", () => $("#cancel").close());
$("#cancel-yes").addEventListener("click", () => busy($("#cancel-yes"), async () => {
  await post("standby", { order: id, cancel: true });
  await again();
}).then(() => $("#cancel").close()));

/** Back from a gateway the address names the sale alone: the order is the one just made here, or the newest there. */
async function find() {
  id = keep.get(`order:${query.get("sale")}`);
  id ??= (await get("standby")).orders.find((one) => one.sale === query.get("sale"))?.order;
  if (!id) return false;
  history.replaceState(null, "", link("order", { order: id }));
  return true;
}

load(async () => {
  if (!signedIn()) return;
  if (!id && !(await find())) return location.replace(link("bookings"));
  await read();
  again = poll(round);
});
