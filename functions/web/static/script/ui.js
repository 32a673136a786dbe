// What all pages share: building elements, money and times, notices, clocks, and the way to the sign-in page.
import { account, get, now } from "./api.js";
import { has, lang, t } from "./text.js";

export const query = new URLSearchParams(location.search);
export const $ = (selector, inside = document) => inside.querySelector(selector);

/** h makes an element: h("p.soft", {title}, "text", child). Functions are listeners, booleans are attributes. */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  if (props && (props instanceof Node || typeof props !== "object" || Array.isArray(props))) {
    children.unshift(props);
    props = null;
  }
  for (const [key, value] of Object.entries(props ?? {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** show replaces what an element holds. */
export const show = (element, ...children) => element.replaceChildren(...children.flat().filter(Boolean));

/** link is the address of a page with a query. */
export function link(page, values = {}) {
  const search = new URLSearchParams({ page });
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") search.set(key, value);
  }
  return `web?${search}`;
}

export const go = (page, values) => location.assign(link(page, values));

/** money shows minor units with the currency's own exponent (JPY 1935 is 1935 yen). */
export function money(value) {
  if (!value) return "";
  const format = new Intl.NumberFormat(lang, { style: "currency", currency: value.currency });
  return format.format(value.amount / 10 ** format.resolvedOptions().maximumFractionDigits);
}

// A time is shown in the stop's zone. Without a zone its offset says the local time.
function zoned(text, zone) {
  if (zone) return [new Date(text), zone];
  const local = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)/.exec(text);
  return local && !text.endsWith("Z") ? [new Date(`${local[1]}Z`), "UTC"] : [new Date(text), undefined];
}
const format = (text, zone, options) => {
  if (!text) return "";
  const [at, timeZone] = zoned(text, zone);
  return new Intl.DateTimeFormat(lang, { ...options, timeZone }).format(at);
};
export const clockTime = (text, zone) => format(text, zone, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export const day = (text, zone) => format(text, zone, { weekday: "short", day: "numeric", month: "short" });
export const dayTime = (text, zone) => format(text, zone, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export const dateOnly = (text) => new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeZone: "UTC" }).format(new Date(`${text}T00:00:00Z`));
/** hereTime is a moment in the reader's own zone. */
export const hereTime = (text) => new Intl.DateTimeFormat(lang, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" }).format(new Date(text));
export const hereClock = (text) => new Intl.DateTimeFormat(lang, { timeStyle: "medium" }).format(new Date(text));

/** span is a length of time as "1:05:09" or "4:07". */
export function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s >= 86400) return t("time.days", { n: Math.floor(s / 86400) });
  return s >= 3600 ? `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
}

/** about is a length of time in words, rounded up so that it does not promise too much. */
export function about(seconds) {
  if (seconds < 50) return t("time.seconds", { n: Math.max(5, Math.ceil(seconds / 10) * 10) });
  if (seconds < 5400) return t("time.minutes", { n: Math.ceil(seconds / 60) });
  if (seconds < 172_800) return t("time.hours", { n: Math.ceil(seconds / 3600) });
  return t("time.days", { n: Math.ceil(seconds / 86400) });
}

/**
 * countdown writes the time left to a moment (ms, server's clock) into an element each second, says the last
 * minute and half minute to screen readers, and calls `end` once. It answers a function that stops it.
 */
export function countdown(element, until, end, { warn = 0 } = {}) {
  element.setAttribute("role", "timer");
  let stopped = false;
  const step = () => {
    if (stopped) return;
    const left = until - now();
    element.textContent = span(left);
    element.classList.toggle("late", left < warn);
    if (left <= 0) {
      stopped = true;
      end?.();
      return;
    }
    const whole = Math.ceil(left / 1000);
    if (warn && (whole === 60 || whole === 30)) say(t("time.left", { n: whole }));
    setTimeout(step, left % 1000 || 1000);
  };
  step();
  return () => (stopped = true);
}

/** say tells screen readers something that is also seen. */
export function say(text) {
  $("#say").textContent = text;
}

/** notice shows a message above the page's content; kind is "", "warn", "bad" or "good". No text clears it. */
export function notice(text, kind = "", ...more) {
  const box = $("#notice");
  if (!text) return show(box);
  show(box, h(`div.notice${kind ? `.${kind}` : ""}`, h("p", text), ...more));
  if (kind === "bad") box.scrollIntoView({ block: "nearest" });
}

/** explain shows a problem: its text above, each field's beside the field, and what can be done. */
export function explain(problem, form) {
  if (form) clearFields(form);
  if (!problem.code) {
    console.error(problem);
    return notice(t("error.unknown"), "bad");
  }
  if (problem.status === 401) return askSignIn();
  let first = null;
  const rest = [];
  for (const { field, detail } of problem.errors) {
    const input = form && [...form.elements].find((one) => one.name && (one.name === field || one.dataset.field === field));
    if (!input) {
      rest.push(h("p.small", `${field}: ${detail}`));
      continue;
    }
    const id = `wrong-${input.name}`;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", id);
    (input.closest(".field") ?? input.parentElement).append(h("span.wrong", { id }, detail));
    first ??= input;
  }
  first?.focus();
  const trace = problem.status >= 500 && problem.trace ? h("p.small", t("error.trace", { trace: problem.trace })) : null;
  notice(problem.message, problem.lost ? "warn" : "bad", ...rest, trace ?? "");
}

function clearFields(form) {
  form.querySelectorAll(".wrong").forEach((one) => one.remove());
  form.querySelectorAll("[aria-invalid]").forEach((one) => {
    one.removeAttribute("aria-invalid");
    one.removeAttribute("aria-describedby");
  });
}

/** busy runs work for a button: no second press meanwhile; a problem is explained. */
export async function busy(button, work, form) {
  if (button?.getAttribute("aria-busy") === "true") return;
  button?.setAttribute("aria-busy", "true");
  try {
    notice("");
    if (form) clearFields(form);
    return await work();
  } catch (problem) {
    explain(problem, form);
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

/** askSignIn leads to the sign-in page and back here. */
export function askSignIn() {
  location.replace(link("signin", { next: location.search }));
}

/** signedIn says whether an account is there, and leads to the sign-in page if not. */
export function signedIn() {
  if (account.token()) return true;
  askSignIn();
  return false;
}

/** load runs a page: a problem while it starts is shown with a button to try again. */
export async function load(work) {
  try {
    await work();
  } catch (problem) {
    explain(problem);
    if (problem.status !== 401) $("#notice .notice")?.append(h("button.second", { type: "button", click: () => location.reload() }, t("error.again")));
  } finally {
    $("#main").removeAttribute("aria-busy");
  }
}

/** saleOf reads one sale, with its layout, and its prices for an interval or else the whole route. */
export const saleOf = (id, from, to) => get("catalog", { sale: id, ...(from && to ? { from, to } : {}) }, { open: true });

/** roomOf is the id of the waiting room in front of a sale, null without one. */
export const roomOf = (sale) => sale.room || null;

/** placesOf are the seats of a class in layout order, with their shown names. */
export function placesOf(sale, name) {
  return (sale.layout?.coaches ?? []).filter((coach) => coach.class === name)
    .flatMap((coach) => coach.seats.map((seat) => ({ ...seat, coach: coach.coach, name: coach.coach ? `${coach.coach}-${seat.seat}` : seat.seat })));
}

const stopLabel = (stop, time) => [stop.name, dayTime(time, stop.timezone)].filter(Boolean).join(" · ");

/** journey fills a form's choices `from` and `to` with the stops where one may board and, later than that, alight. */
export function journey(form, sale, start, end) {
  const { from, to } = form.elements;
  show(from, sale.stops.slice(0, -1).filter((stop) => stop.board !== "no").map((stop) => h("option", { value: stop.id }, stopLabel(stop, stop.departs ?? stop.arrives))));
  if (start) from.value = start;
  if (from.selectedIndex < 0) from.selectedIndex = 0;
  // Only stops after the chosen start; the last choice stays where it can.
  const ends = (before) => {
    const first = sale.stops.findIndex((stop) => stop.id === from.value);
    const later = sale.stops.filter((stop, i) => i > first && stop.alight !== "no");
    show(to, later.map((stop) => h("option", { value: stop.id }, stopLabel(stop, stop.arrives ?? stop.departs))));
    to.value = later.some((stop) => stop.id === before) ? before : later.at(-1)?.id;
  };
  ends(end);
  from.onchange = () => ends(to.value); // before the form hears of it
}

/** unpack reads a map's two bits a seat, the first seat in the lowest bits of the first byte: 0 free, 1 held, 2 booked. */
export function unpack(text, n) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Array.from({ length: n }, (_, i) => (bytes[i >> 2] >> ((i & 3) * 2)) & 3);
}

/** fare is the price of one seat of a class for an interval, where the list of prices has it. */
export function fare(sale, one, from, to) {
  const pair = (one.prices ?? []).find((price) => price.from === from && price.to === to);
  return pair?.price ?? null;
}

/** waitable says whether people may wait for a class of a sale now (DESIGN 8): numbered seats, and the sale is open. */
export const waitable = (sale, one) => one.stock === "numbered" && sale.state === "open" && Date.parse(sale.opens_at) <= now() && !(Date.parse(sale.closes_at) <= now());

/** invitation is the way to standby, with what it means, for an interval that the open sale cannot give now. */
export function invitation(sale, values) {
  return h("div.notice", h("p", h("b", t("standby.invite"))), h("p.small", t("standby.what")),
    h("p.row", h("a.button.second", { href: link("standby", { sale: sale.sale, ...values }) }, t("standby.title"))));
}

/** seatWords names seats as people say them: "coach 3 seat 12A". */
export function seatWords(sale, name, seats) {
  const places = placesOf(sale, name);
  return seats.map((seat) => {
    const place = places.find((one) => one.name === seat);
    return place?.coach ? t("seats.coach_seat", { coach: place.coach, seat: place.seat }) : t("seats.one_seat", { seat });
  }).join(t("seats.and"));
}

/** nameFields are the fields for who travels, named as the API names them; a seat is told where it is known. */
export function nameFields(n, { names = [], seats = [], required = false } = {}) {
  return Array.from({ length: n }, (_, i) => h("div.field",
    h("label", { for: `name-${i}` }, seats[i] ? t("pay.name_seat", { n: i + 1, seat: seats[i] }) : t("pay.name", { n: i + 1 })),
    h("input", { id: `name-${i}`, name: `passengers[${i}].name`, value: names[i] ?? "", autocomplete: i === 0 ? "name" : "off", maxlength: 100, required })));
}

/** namesIn are the names written into these fields. */
export const namesIn = (box) => [...box.querySelectorAll("input")].map((input) => input.value.trim());

/** gatewayChoice fills a fieldset with the gateways of a sale; it is hidden where there is no choice. */
export function gatewayChoice(box, gateways) {
  box.hidden = gateways.length < 2;
  box.querySelectorAll("label").forEach((each) => each.remove());
  box.append(...gateways.map((name, i) => {
    const input = h("input", { type: "radio", name: "gateway", value: name });
    input.checked = i === 0;
    return h("label.check", input, t(`gateway.${name}`));
  }));
}

/** contactIn is where a form's tickets go, as the API takes it. */
export function contactIn(form) {
  const contact = { email: form.elements.email.value.trim(), phone: form.elements.phone.value.replace(/[\s().-]/g, "") };
  return { language: lang, ...Object.fromEntries(Object.entries(contact).filter(([, value]) => value)) };
}

/** said is a word ("history") or sentence ("why") of a history, in the reader's language where the catalogue has it. */
export function said(kind, words) {
  const key = words.toLowerCase().replace(/[^a-z]+/g, "_");
  return kind === "why" ? (has(`why.${key}`) ? t(`why.${key}`) : words) : has(`history.${key}`) ? t(`history.${key}`) : words;
}

/** historyLines are a history as list items. */
export const historyLines = (lines) => (lines ?? []).map((one) => h("li", h("span.soft", hereTime(one.at)), " ", said("history", one.what),
  one.why ? h("span.soft", ` · ${said("why", one.why)}`) : ""));

/** saleHead is the title line of a sale with the chosen interval. */
export function saleHead(sale, from, to) {
  const a = sale.stops.find((stop) => stop.id === from) ?? sale.stops[0];
  const b = sale.stops.find((stop) => stop.id === to) ?? sale.stops.at(-1);
  const starts = a.departs ?? a.arrives;
  const ends = b.arrives ?? b.departs;
  const parts = [h("p.soft", sale.title + (sale.number && !sale.title.includes(sale.number) ? ` · ${sale.number}` : ""))];
  if (sale.kind === "train") {
    parts.push(h("p", h("b", `${a.name} – ${b.name}`), h("br"), `${dayTime(starts, a.timezone)} – ${day(ends, b.timezone) === day(starts, a.timezone) ? clockTime(ends, b.timezone) : dayTime(ends, b.timezone)}`));
  } else if (sale.kind === "stay") {
    parts.push(h("p", h("b", `${a.name} – ${b.name}`)));
  } else {
    parts.push(h("p", h("b", dayTime(starts, a.timezone))));
  }
  return h("div", parts);
}

/** poll calls work again and again; work answers the ms to wait, or null to end. Waking and coming online call it at once. */
export function poll(work) {
  let timer, running = false, ended = false, last = 0;
  const step = async () => {
    clearTimeout(timer);
    if (running || ended) return;
    running = true;
    last = Date.now();
    let wait;
    try {
      wait = await work();
    } finally {
      running = false;
    }
    if (wait === null) ended = true;
    else timer = setTimeout(step, wait ?? 5000);
  };
  const wake = () => {
    if (document.visibilityState === "visible" && Date.now() - last > 1000) step();
  };
  document.addEventListener("visibilitychange", wake);
  addEventListener("online", wake);
  addEventListener("pageshow", (event) => event.persisted && wake());
  step();
  return step;
}

// The head of every page: who is signed in, and the language switch, which stays on the same page.
function frame() {
  const who = $("#who");
  const token = account.token();
  if (token) {
    show(who, h("button.plain", {
      type: "button",
      click: () => {
        account.clear();
        go("home");
      },
    }, t("nav.sign_out")));
    who.title = account.email();
    if (account.role() === "organiser") who.before(h("a", { href: link("organiser") }, t("nav.organiser")));
  } else {
    show(who, h("a", { href: link("signin", { next: location.search }) }, t("nav.sign_in")));
  }
  $("#lang").addEventListener("click", (event) => {
    event.preventDefault();
    const other = $("#lang").lang;
    document.cookie = `hf_lang=${other}; path=/; max-age=31536000; samesite=lax`;
    query.delete("lang");
    location.replace(`web?${query}`);
  });
}
frame();
