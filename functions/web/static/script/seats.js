// Choosing seats: any that fit, or on the drawing of the coach or hall.
import { account, get, now, place, post } from "./api.js";
import { has, t } from "./text.js";
import {
  $, busy, contactIn, countdown, fare, go, h, invitation, link, load, money, notice, placesOf, poll, query, roomOf, saleHead, saleOf, say, show, signedIn, unpack, waitable,
} from "./ui.js";

const form = $("#form");
const choice = { from: query.get("from") ?? undefined, to: query.get("to") ?? undefined };
let sale, room, admit;
let places = [];           // of the chosen class, in layout order
let states = [];           // 0 free, 1 held, 2 booked, as the places
let lefts = new Map();     // class → seats left
let chosen = new Set();    // names of seats
let coach = null;          // the coach drawn
let touched = false;       // the person has chosen the class, or seen what the page chose
const buttons = new Map(); // seat name → its button

const one = () => sale.classes.find((each) => each.class === form.elements.class.value);
const numbered = () => one().stock === "numbered";
const quantity = () => Number(form.elements.quantity.value);

function words(seat, state) {
  const about = (seat.attributes ?? []).filter((name) => has(`seat.${name}`)).map((name) => t(`seat.${name}`));
  return [t("seats.seat", { name: seat.name }), ...about, t(["seats.free", "seats.held", "seats.booked"][state] ?? "seats.held")].join(", ");
}

/** Draws one coach: rows down, columns across, a gap where two aisle seats meet. */
function draw() {
  const mine = places.map((seat, i) => ({ ...seat, i })).filter((seat) => seat.coach === coach);
  buttons.clear();
  const columns = [...new Set(mine.map((seat) => seat.column))].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const rows = [...new Set(mine.map((seat) => seat.row))].sort((a, b) => a - b);
  const aisle = (name) => mine.some((seat) => seat.column === name && seat.attributes?.includes("aisle"));
  const line = new Map();
  let next = 2; // line 1 has the row numbers
  columns.forEach((name, i) => {
    if (i > 0 && aisle(columns[i - 1]) && aisle(name)) next++;
    line.set(name, next++);
  });
  const box = h(`div.coach${columns.length > 7 ? ".many" : ""}`, { role: "group", "aria-label": coach ? t("seats.coach", { name: coach }) : t("seats.hall") });
  const at = (element, row, column) => {
    element.style.gridRow = row;
    element.style.gridColumn = column;
    return element;
  };
  for (const name of columns) box.append(at(h("span", { "aria-hidden": "true" }, name), 1, line.get(name)));
  rows.forEach((row, i) => box.append(at(h("span", { "aria-hidden": "true" }, String(row)), i + 2, 1)));
  for (const seat of mine) {
    const button = h("button.seat", { type: "button", tabindex: "-1", click: () => toggle(seat), focus: () => rove(button) }, seat.seat);
    button.dataset.row = rows.indexOf(seat.row);
    button.dataset.line = line.get(seat.column);
    if (seat.attributes?.includes("accessible")) button.classList.add("accessible");
    buttons.set(seat.name, { button, seat });
    box.append(at(button, rows.indexOf(seat.row) + 2, line.get(seat.column)));
  }
  box.addEventListener("keydown", arrows);
  show($("#hall"), sale.kind === "show" ? h("p.screen", t("seats.screen")) : null, box);
  paint();
  const first = [...buttons.values()].find(({ seat }) => states[seat.i] === 0) ?? buttons.values().next().value;
  if (first) first.button.tabIndex = 0;
}

/** One stop of the Tab key for the whole drawing; the arrows move inside it. */
function rove(button) {
  for (const each of buttons.values()) each.button.tabIndex = each.button === button ? 0 : -1;
}

function arrows(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const from = event.target.closest(".seat");
  if (!step || !from) return;
  event.preventDefault();
  const [row, line] = [Number(from.dataset.row), Number(from.dataset.line)];
  let best = null, least = Infinity;
  for (const { button } of buttons.values()) {
    const down = (Number(button.dataset.row) - row) * (step[0] || 1);
    const across = (Number(button.dataset.line) - line) * (step[1] || 1);
    const [along, aside] = step[0] ? [down, Math.abs(across)] : [across, Math.abs(down)];
    if (along <= 0 || (step[1] && aside > 0)) continue;
    if (along * 10 + aside < least) [best, least] = [button, along * 10 + aside];
  }
  best?.focus();
}

function toggle(seat) {
  if (states[seat.i] !== 0 && !chosen.has(seat.name)) return say(words(seat, states[seat.i]));
  if (!chosen.delete(seat.name)) {
    const most = sale.booking_limit ?? 6;
    if (chosen.size >= most) return notice(t("seats.limit", { n: most }), "warn");
    chosen.add(seat.name);
  }
  paint();
}

/** Colours and labels by state; only what changed is written. */
function paint() {
  for (const { button, seat } of buttons.values()) {
    const state = states[seat.i];
    const picked = chosen.has(seat.name);
    button.classList.toggle("held", state === 1 && !picked);
    button.classList.toggle("booked", state === 2 && !picked);
    button.setAttribute("aria-pressed", picked);
    button.setAttribute("aria-disabled", state !== 0 && !picked);
    const label = words(seat, state);
    if (button.getAttribute("aria-label") !== label) {
      button.setAttribute("aria-label", label);
      button.title = label;
    }
  }
  const price = fare(sale, one(), choice.from, choice.to);
  const names = [...chosen].join(", ");
  show($("#chosen"), chosen.size ? [h("b", names), price ? ` · ${money({ ...price, amount: price.amount * chosen.size })}` : ""] : t("seats.none_chosen"));
  $("#take").disabled = chosen.size === 0;
}

function coaches() {
  const names = [...new Set(places.map((seat) => seat.coach))];
  const free = (name) => places.filter((seat, i) => seat.coach === name && states[i] === 0).length;
  if (coach === null || !names.includes(coach)) coach = names.find((name) => free(name) > 0) ?? names[0];
  const box = $("#coaches");
  box.hidden = names.length < 2;
  const wanted = names.map((name) => `${name}:${free(name)}:${name === coach}`).join();
  if (box.dataset.shown === wanted) return;
  box.dataset.shown = wanted;
  const focused = document.activeElement?.dataset?.coach;
  show(box, names.map((name) => h("button", {
    type: "button", "aria-pressed": String(name === coach), "data-coach": name,
    click: () => {
      coach = name;
      coaches();
      draw();
    },
  }, `${t("seats.coach", { name })} · ${t("seats.free_n", { n: free(name) })}`)));
  if (focused) [...box.children].find((each) => each.dataset.coach === focused)?.focus();
}

function prices() {
  const price = fare(sale, one(), choice.from, choice.to);
  const left = lefts.get(one().class);
  show($("#price"), price ? h("b", money({ ...price, amount: price.amount * quantity() })) : null, " ",
    h("span.soft", left === undefined ? "" : left === 0 ? t("left.none") : t("left.some", { n: left })));
  const none = left < quantity() && waitable(sale, one());
  const values = { ...choice, class: one().class, quantity: quantity() };
  const key = none ? JSON.stringify(values) : "";
  if ($("#wait").dataset.shown === key) return;
  $("#wait").dataset.shown = key;
  show($("#wait"), none ? invitation(sale, values) : null);
}

/** The first class may have nothing left: then one that has. A class that came with the address stays. */
function preselect() {
  if (touched) return;
  touched = true;
  if (one().class === query.get("class")) return;
  if (lefts.get(one().class) !== 0) return;
  const other = sale.classes.find((each) => lefts.get(each.class) > 0);
  if (!other) return;
  form.elements.class.value = other.class;
  pick();
}

let pattern = "";
async function refresh() {
  try {
    const map = await get("seat-map", { sale: sale.sale, ...choice }, { open: true });
    lefts = new Map(map.classes.map((each) => [each.class, each.left]));
    preselect();
    $("#map-state").hidden = !map.stale;
    $("#map-state").textContent = map.stale ? t("map.stale") : "";
    const mine = map.classes.find((each) => each.class === one().class);
    if (numbered() && mine?.seats !== undefined) {
      states = unpack(mine.seats, places.length);
      const gone = [...chosen].filter((name) => states[places.findIndex((seat) => seat.name === name)] !== 0);
      if (gone.length) {
        for (const name of gone) chosen.delete(name);
        notice(t("seats.gone", { names: gone.join(", ") }), "warn");
      }
      coaches();
      const now = `${one().class} ${coach}`;
      if (pattern === now) paint();
      else draw();
      pattern = now;
    }
    prices();
  } catch (problem) {
    if (!problem.code) throw problem;
    $("#map-state").hidden = false;
    $("#map-state").textContent = problem.lost ? t("map.stale") : problem.message;
    if (!problem.lost) return 30_000;
    return Math.max(4000, problem.retryAfter * 1000);
  }
  return document.visibilityState === "visible" ? 2500 + Math.random() * 1000 : 20_000;
}
let again;

function pick() {
  chosen.clear();
  pattern = "";
  coach = null;
  states = [];
  places = numbered() ? placesOf(sale, one().class) : [];
  $("#map").hidden = !numbered();
  $("#wishes").hidden = !numbered();
  const most = sale.booking_limit ?? 6;
  const before = quantity() || Math.min(Number(query.get("quantity")) || 1, most);
  show(form.elements.quantity, Array.from({ length: most }, (_, i) => h("option", { value: i + 1 }, String(i + 1))));
  form.elements.quantity.value = before;
}

/** Holds seats and goes on to pay. A refusal of the admission leads back to the room. */
async function hold(button, what) {
  query.set("quantity", quantity()); // still there after signing in
  history.replaceState(null, "", `?${query}`);
  if (!signedIn()) return;
  await busy(button, async () => {
    const body = { sale: sale.sale, class: one().class, ...choice, ...what };
    body.contact = contactIn(form);
    try {
      const booking = await post("hold", body, { headers: admit ? { "Admit-Token": admit.admit_token } : {} });
      go("pay", { booking: booking.booking });
    } catch (problem) {
      if (problem.code === "seat-taken") {
        chosen.clear();
        again();
      }
      if (["sold-out", "standby-first"].includes(problem.code) && waitable(sale, one())) {
        return notice(problem.message, "warn", h("p.row", h("a.button.second", { href: link("standby", { sale: sale.sale, ...choice, class: body.class, quantity: body.seats?.length ?? body.quantity }) }, t("standby.title"))));
      }
      if (["admit-required", "admit-expired", "admit-other", "room-reset"].includes(problem.code)) {
        return notice(problem.message, "warn", h("a.button", { href: roomLink("again") }, t("room.rejoin")));
      }
      if (["limit-reached", "wrong-state"].includes(problem.code)) {
        return notice(problem.message, "warn", h("p.row", h("a", { href: link("bookings") }, t("nav.bookings")), room ? h("a", { href: roomLink("again") }, t("room.rejoin")) : ""));
      }
      throw problem;
    }
  }, form);
}

const roomLink = (join) => link("room", { sale: sale.sale, ...choice, class: one()?.class, join });

form.addEventListener("change", (event) => {
  if (event.target.name === "class") {
    touched = true;
    pick();
    again();
  }
  if (event.target.name === "quantity") prices();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const wish = (name) => form.elements[name].checked;
  const prefer = numbered() ? { prefer: { together: wish("together"), window: wish("window"), accessible: wish("accessible") } } : {};
  hold($("#find"), { quantity: quantity(), ...prefer });
});
$("#take").addEventListener("click", () => hold($("#take"), { seats: [...chosen] }));

load(async () => {
  sale = await saleOf(query.get("sale"), query.get("from"), query.get("to"));
  room = roomOf(sale);
  choice.from ??= sale.stops[0].id;
  choice.to ??= sale.stops.at(-1).id;
  show($("#head"), saleHead(sale, choice.from, choice.to));
  show(form.elements.class, sale.classes.map((each) => h("option", { value: each.class }, each.title)));
  if (sale.classes.some((each) => each.class === query.get("class"))) form.elements.class.value = query.get("class");
  if (room) {
    if (!signedIn()) return;
    const mine = place.get(room);
    if (!mine?.admit_token || mine.admit_for === "standby" || Date.parse(mine.admit_expires_at) <= now()) return location.replace(roomLink());
    admit = mine;
    $("#admit").hidden = false;
    countdown($("#admit .clock"), Date.parse(mine.admit_expires_at), () => notice(t("seats.admit_over"), "warn", h("a.button", { href: roomLink("again") }, t("room.rejoin"))), { warn: 60_000 });
  }
  form.elements.email.value = account.email();
  pick();
  again = poll(refresh);
});
