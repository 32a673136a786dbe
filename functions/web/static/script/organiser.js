// The organiser's sales: their states, the rate of the room, and how the room stands.
import { get, post } from "./api.js";
import { t } from "./text.js";
import { $, busy, dayTime, h, link, load, notice, poll, roomOf, show, signedIn } from "./ui.js";

const moves = { draft: ["open"], open: ["paused", "closed"], paused: ["open", "closed"] };
const rooms = new Map(); // room → elements that show it

function patch(button, body) {
  return busy(button, async () => {
    await post("catalog", body);
    await list();
    notice(t("organiser.done"), "good");
  });
}

function card(sale) {
  const room = roomOf(sale);
  const starts = sale.stops[0].departs ?? sale.stops[0].arrives;
  const status = h("dl.facts.small", { "aria-label": t("room.title") });
  if (room) rooms.set(room, [...(rooms.get(room) ?? []), status]);
  const rate = h("input", { id: `rate-${sale.sale}`, name: "rate", type: "number", min: 0.1, max: 100000, step: "any", required: true, input: () => (rate.dataset.touched = "yes") });
  const form = h("form.row", {
    submit: (event) => {
      event.preventDefault();
      patch($("button", form), { room, patch: { admit_per_second: Number(rate.value) } });
    },
  }, h("label", { for: rate.id }, t("organiser.rate")), h("span", rate), h("button.second", t("organiser.set")));
  const pause = (paused) => h("button.second", { type: "button", "data-pause": String(paused), hidden: true, click: (event) => patch(event.target, { room, patch: { paused } }) }, t(paused ? "organiser.pause_room" : "organiser.resume_room"));
  return h("li.card",
    h("div.row.between", h("h2", h("a", { href: link("sale", { sale: sale.sale }) }, sale.title)), h("span.badge", t(`state.sale.${sale.state}`))),
    h("p.soft", dayTime(starts, sale.stops[0].timezone), " · ", sale.classes.map((one) => `${one.title}: ${typeof one.left === "number" ? t("left.some", { n: one.left }) : ""}`).join(" · ")),
    status,
    h("p.row", (moves[sale.state] ?? []).map((state) => h(`button.${state === "closed" ? "bad" : "second"}`, {
      type: "button",
      click: (event) => (state !== "closed" || confirm(t("organiser.sure"))) && patch(event.target, { sale: sale.sale, patch: { state } }),
    }, t(`organiser.to.${state}`)))),
    room ? form : null,
    room ? h("p.row", pause(true), pause(false)) : null);
}

async function list() {
  const { sales } = await get("catalog", { mine: true });
  rooms.clear();
  show($("#sales"), sales.length ? sales.map(card) : h("li", t("home.none")));
  await live();
}

async function live() {
  await Promise.all([...rooms].map(async ([room, boxes]) => {
    const status = await get("join-room", { room }, { open: true }).catch(() => null);
    if (!status) return;
    const fact = (name, value) => [h("dt", t(name)), h("dd", String(value ?? "–"))];
    for (const box of boxes) {
      show(box, [fact("organiser.room", t(`room.status.${status.state}`)), fact("room.joined", status.joined), fact("room.serving", status.serving), fact("organiser.lapsed", status.lapsed), fact("room.speed", t("room.speed_text", { n: status.admit_per_second }))].flat());
      const rate = $("input[name=rate]", box.parentElement);
      if (rate && !rate.dataset.touched) rate.value = status.admit_per_second;
      for (const button of box.parentElement.querySelectorAll("[data-pause]")) button.hidden = (button.dataset.pause === "true") === (status.state === "paused");
    }
  }));
}

load(async () => {
  if (!signedIn()) return;
  await list();
  poll(async () => {
    await live();
    return document.visibilityState === "visible" ? 2000 : 20_000;
  });
});
