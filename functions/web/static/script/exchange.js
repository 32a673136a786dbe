// Exchanging a booking for other stops, another class or other seats of the same sale, at the same price: what one wants
// instead, then what it would be, then the deed.
import { get, post } from "./api.js";
import { t } from "./text.js";
import { $, busy, fare, h, journey, money, placesOf, saleOf, seatWords, show, unpack } from "./ui.js";

const form = $("#other");
const dialog = $("#exchange");
let booking, sale, done;
let then; // what the preview said one would have
let asked = 0;

const one = () => sale.classes.find((each) => each.class === form.elements.class.value);
const values = () => ({ from: form.elements.from.value, to: form.elements.to.value, class: form.elements.class.value });

/** What the chosen journey costs and which of its seats are free; the booking's own count as free. */
async function look() {
  const mine = ++asked;
  const { from, to } = values();
  say("");
  if (!fare(sale, one(), from, to)) sale = await saleOf(sale.sale, from, to);
  const map = await get("seat-map", { sale: sale.sale, from, to, class: one().class }, { open: true });
  if (mine !== asked) return;
  const price = fare(sale, one(), from, to);
  const same = price && price.amount * booking.quantity === booking.price.amount;
  show($("#other-price"), price ? [h("b", money({ ...price, amount: price.amount * booking.quantity })), same ? "" : ` · ${t("exchange.other_price", { price: money(booking.price) })}`] : "");
  $("#exchange-look").disabled = !same;
  const seats = map.classes.find((each) => each.class === one().class)?.seats;
  const states = seats === undefined ? [] : unpack(seats, placesOf(sale, one().class).length);
  const free = placesOf(sale, one().class).filter((seat, i) => states[i] === 0 || (one().class === booking.class && booking.seats.includes(seat.name)));
  $("#pick").hidden = seats === undefined;
  const before = picked();
  show($("#picks"), Array.from({ length: booking.quantity }, (_, i) => {
    const id = `pick-${i}`;
    const select = h("select", { id, name: id }, h("option", { value: "" }, t("exchange.any")), free.map((seat) => h("option", { value: seat.name }, seat.name)));
    select.value = before[i] ?? "";
    if (select.selectedIndex < 0) select.value = "";
    return h("div.field", h("label", { for: id }, t("exchange.seat", { n: i + 1 })), select);
  }));
}

const picked = () => [...$("#picks").querySelectorAll("select")].map((select) => select.value);

/** What is asked for: the seats where all of them are picked, else as many as the booking has. */
function wish() {
  const seats = picked();
  return { sale: booking.sale, ...values(), ...(seats.length > 0 && seats.every(Boolean) ? { seats } : { quantity: booking.quantity }) };
}

/** Stays inside the dialog: what is behind it cannot be seen. */
function say(text) {
  show($("#other-notice"), text ? h("div.notice.warn", h("p", text)) : null);
}

const trying = (button, work) => busy(button, async () => {
  try {
    say("");
    await work();
  } catch (problem) {
    if (!problem.code) throw problem;
    sure(false);
    say([problem.message, ...problem.errors.map((each) => each.detail)].join(" "));
  }
});

function sure(yes) {
  form.hidden = yes;
  $("#exchange-sure").hidden = !yes;
}

const stop = (id) => sale.stops.find((each) => each.id === id)?.name ?? id;
const words = (it) => [sale.kind === "show" ? "" : `${stop(it.from)} – ${stop(it.to)}`, sale.classes.find((each) => each.class === it.class)?.title,
  seatWords(sale, it.class, it.seats)].filter(Boolean).join(", ");

form.addEventListener("change", (event) => {
  if (!event.target.name.startsWith("pick-")) trying(null, look);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  trying($("#exchange-look"), async () => {
    const would = await post("release-event", { type: "RESCHEDULE", booking: booking.booking, to: wish(), preview: true });
    // Exactly what is shown is asked for then.
    then = { sale: booking.sale, class: would.class, from: would.from, to: would.to, seats: would.seats };
    show($("#exchange-sure dl"), h("dt", t("exchange.now")), h("dd", words(booking)), h("dt", t("exchange.then")), h("dd", h("b", words(then))),
      h("dt", t("booking.price")), h("dd", money(booking.price)));
    sure(true);
    $("#exchange-yes").focus();
  });
});
$("#exchange-yes").addEventListener("click", () => trying($("#exchange-yes"), async () => {
  await post("release-event", { type: "RESCHEDULE", booking: booking.booking, to: then });
  dialog.close();
  await done();
}));
$("#exchange-back").addEventListener("click", () => sure(false));
$("#exchange-no").addEventListener("click", () => dialog.close());

/** exchange opens the dialog for a booking; `after` runs once it has been exchanged. */
export function exchange(button, of, itsSale, after) {
  return busy(button, async () => {
    [booking, sale, done] = [of, itsSale, after];
    dialog.querySelectorAll("[data-train]").forEach((each) => (each.hidden = sale.kind === "show"));
    journey(form, sale, booking.from, booking.to);
    show(form.elements.class, sale.classes.filter((each) => each.stock === "numbered").map((each) => h("option", { value: each.class }, each.title)));
    form.elements.class.value = booking.class;
    show($("#picks"));
    $("#pick").open = false;
    sure(false);
    await look();
    dialog.showModal();
  });
}
