// One booking: its state, tickets, history, and letting go.
import { generate } from "./lean-qr.js";
import { get, post } from "./api.js";
import { exchange } from "./exchange.js";
import { has, t } from "./text.js";
import { $, busy, explain, h, historyLines, link, load, money, notice, poll, query, saleHead, saleOf, show, signedIn } from "./ui.js";

const badges = { held: "warn", booked: "good", expired: "bad", lost: "bad" };
let id = query.get("booking");
let booking, sale;
let ticketShown = "";
let again;

/** A QR drawn as one path, with the quiet zone of four modules that scanners want. */
function qr(text, label) {
  const code = generate(text);
  let path = "";
  for (let y = 0; y < code.size; y++) {
    for (let x = 0; x < code.size; x++) if (code.get(x, y)) path += `M${x + 4} ${y + 4}h1v1h-1z`;
  }
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${code.size + 8} ${code.size + 8}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  svg.setAttribute("shape-rendering", "crispEdges");
  const ground = document.createElementNS(svg.namespaceURI, "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", "#fff");
  const modules = document.createElementNS(svg.namespaceURI, "path");
  modules.setAttribute("d", path);
  svg.append(ground, modules);
  return svg;
}

async function tickets() {
  if (booking.state !== "booked" || ticketShown === booking.booking) return;
  try {
    const ticket = await get("ticket", { booking: booking.booking });
    show($("#tickets"), ticket.seats.map((one) => h("li", qr(one.qr, t("booking.qr", { seat: one.seat })), h("b", one.seat), h("br"), one.passenger ?? "")));
    ticketShown = booking.booking;
  } catch (problem) {
    if (!problem.code) throw problem;
    show($("#tickets"), h("li.soft", problem.lost || problem.status === 404 || problem.code === "wrong-state" ? t("booking.ticket_soon") : problem.message));
  }
}

/** A file that needs the account token: fetched, then handed to the browser. */
function file(type, name, label) {
  return h("button.second", {
    type: "button",
    click: (event) => busy(event.target, async () => {
      const blob = await get("ticket", { booking: booking.booking }, { headers: { Accept: type } });
      const address = URL.createObjectURL(new Blob([blob], { type }));
      h("a", { href: address, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    }),
  }, label);
}

function render() {
  $("#locator").textContent = booking.locator;
  $("#state").className = `badge ${badges[booking.state] ?? ""}`;
  $("#state").textContent = t(`state.booking.${booking.state}`);
  if (query.get("new") && booking.state === "booked") show($("#message"), h("div.notice.good", h("p", t("booking.new"))));
  else if (has(`booking.note.${booking.state}`)) show($("#message"), h("div.notice", h("p", t(`booking.note.${booking.state}`))));
  else show($("#message"));
  const fact = (name, value) => value && [h("dt", t(name)), h("dd", value)];
  show($("#head"), saleHead(sale, booking.from, booking.to));
  show($("#facts"), [
    fact("booking.class", sale.classes.find((one) => one.class === booking.class)?.title ?? booking.class),
    fact(booking.seats?.length ? "booking.seats" : "booking.quantity", booking.seats?.length ? booking.seats.join(", ") : String(booking.quantity)),
    fact("booking.passengers", (booking.passengers ?? []).map((one) => one.name).filter(Boolean).join(", ")),
    fact("booking.price", money(booking.price)),
    fact("booking.contact", [booking.contact?.email, booking.contact?.phone].filter(Boolean).join(", ")),
  ].filter(Boolean).flat());
  const does = {
    booked: () => [file("application/pdf", `${booking.locator}.pdf`, t("booking.pdf")), file("text/calendar", `${booking.locator}.ics`, t("booking.calendar")),
      booking.seats?.length ? h("button.second", { type: "button", click: (event) => exchange(event.target, booking, sale, exchanged) }, t("booking.exchange")) : null,
      h("button.bad", { type: "button", click: (event) => preview(event.target) }, t("booking.cancel"))],
    held: () => [h("a.button", { href: link("pay", { booking: booking.booking }) }, t("booking.to_pay"))],
  };
  if ($("#does").dataset.shown !== booking.state) {
    $("#does").dataset.shown = booking.state;
    show($("#does"), does[booking.state]?.() ?? []);
  }
  show($("#history"), historyLines(booking.history));
}

/** After an exchange: the tickets are new. */
async function exchanged() {
  ticketShown = "";
  show($("#tickets"));
  await read();
  notice(t("exchange.done"), "good");
  again();
}

/** Letting go of a booking: first what it would give back, then the deed. */
function preview(button) {
  return busy(button, async () => {
    const answer = await post("release-event", { type: "REFUND", booking: booking.booking, preview: true });
    show($("#cancel dl"), h("dt", t("cancel.refund")), h("dd", h("b", money(answer.refund))), answer.fee?.amount ? [h("dt", t("cancel.fee")), h("dd", money(answer.fee))] : null);
    $("#cancel").showModal();
  });
}
$("#cancel-no").addEventListener("click", () => $("#cancel").close());
$("#cancel-yes").addEventListener("click", () => busy($("#cancel-yes"), async () => {
  const answer = await post("release-event", { type: "REFUND", booking: booking.booking });
  $("#cancel").close();
  show($("#tickets"));
  await read();
  notice(t("cancel.done", { amount: money(answer.refund) }), "good");
}).then(() => $("#cancel").close()));

async function read() {
  booking = await get("hold", id ? { booking: id } : { locator: query.get("locator") });
  id = booking.booking;
  sale ??= await saleOf(booking.sale);
  render();
  await tickets();
}

load(async () => {
  if (!signedIn()) return;
  await read();
  again = poll(async () => {
    try {
      await read();
    } catch (problem) {
      if (!problem.lost) {
        explain(problem);
        return null;
      }
    }
    return booking.state === "held" || (booking.state === "booked" && !ticketShown) ? 2000 : 30_000;
  });
});
