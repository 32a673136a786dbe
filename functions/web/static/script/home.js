// The list of what is on sale.
import { get } from "./api.js";
import { t } from "./text.js";
import { $, clockTime, countdown, day, dayTime, fare, h, hereTime, link, load, money, query, show } from "./ui.js";

const filters = ["kind", "date", "from", "to", "q"];
const form = $("#search");
for (const name of filters) form.elements[name].value = query.get(name) ?? "";
const trains = () => form.querySelectorAll("[data-train]").forEach((one) => (one.hidden = !["", "train"].includes(form.elements.kind.value)));
form.elements.kind.addEventListener("change", trains);
form.addEventListener("submit", () => {
  // Empty filters stay out of the address.
  for (const one of form.elements) one.disabled = one.name !== "" && one.value === "";
});
addEventListener("pageshow", () => [...form.elements].forEach((one) => (one.disabled = false)));
trains();

const badges = { open: "good", paused: "warn", closed: "bad", cancelled: "bad" };

/** One sale as a card. A train shows the chosen stops where it calls at them. */
function card(sale) {
  const stop = (name, otherwise) => sale.stops.find((one) => name && [one.id, one.name].some((x) => x.toLowerCase() === name.toLowerCase())) ?? otherwise;
  const a = stop(query.get("from"), sale.stops[0]);
  const b = stop(query.get("to"), sale.stops.at(-1));
  const starts = a.departs ?? a.arrives;
  const ends = b.arrives ?? b.departs;
  const when = sale.kind === "train"
    ? [h("b", clockTime(starts, a.timezone)), ` ${a.name} → `, h("b", clockTime(ends, b.timezone)), ` ${b.name}`, h("br"), h("span.soft", day(starts, a.timezone), " · ", sale.title)]
    : sale.kind === "stay" ? [h("b", sale.title), h("br"), h("span.soft", `${a.name} – ${b.name}`)]
    : [h("b", sale.title), h("br"), h("span.soft", dayTime(starts, a.timezone))];
  const fares = sale.classes.map((one) => {
    const price = fare(sale, one, a.id, b.id);
    return h("li", h("b", one.title), price ? ` ${money(price)}` : "", " ", h("span.soft", left(one.left)));
  });
  const soon = sale.opens_at && Date.parse(sale.opens_at) > Date.now();
  const state = h(`span.badge.${soon ? "warn" : badges[sale.state] ?? "warn"}`);
  if (soon) {
    const clock = h("span.clock");
    show(state, `${t("home.opens")} `, clock);
    state.title = hereTime(sale.opens_at);
    countdown(clock, Date.parse(sale.opens_at), () => show(state, t("state.sale.open")));
  } else {
    show(state, t(`state.sale.${sale.state}`));
  }
  const choose = { sale: sale.sale };
  if (sale.kind !== "show" && query.get("from")) choose.from = a.id;
  if (sale.kind !== "show" && query.get("to")) choose.to = b.id;
  return h("li.card.trip",
    h("div", h("p.when", when), h("ul.fares", fares)),
    h("p.row", state, h("a.button", { href: link("sale", choose), "aria-label": t("home.choose_named", { name: `${sale.title} ${dayTime(starts, a.timezone)}` }) }, t("home.choose"))));
}

function left(n) {
  if (typeof n !== "number") return "";
  return n === 0 ? t("left.none") : t("left.some", { n });
}

load(async () => {
  const search = Object.fromEntries(filters.map((name) => [name, query.get(name)]));
  const answer = await get("catalog", { ...search, cursor: query.get("cursor") }, { open: true });
  show($("#found"), answer.sales.length ? t("home.found", { n: answer.sales.length }) : t("home.none"));
  show($("#sales"), answer.sales.map(card));
  const names = new Set(answer.sales.filter((sale) => sale.kind === "train").flatMap((sale) => sale.stops.map((stop) => stop.name)));
  show($("#stops"), [...names].sort().map((name) => h("option", { value: name })));
  if (answer.next) {
    $("#next").href = link("home", { ...search, cursor: answer.next });
    $("#next").hidden = false;
  }
});
