// All bookings of the account, and its standby orders.
import { get } from "./api.js";
import { t } from "./text.js";
import { $, h, link, load, money, notice, saleHead, saleOf, show, signedIn } from "./ui.js";

const badges = { held: "warn", booked: "good", expired: "bad", lost: "bad" };
const orderBadges = { authorising: "warn", matched: "good", booked: "good", expired: "bad" };
const sales = new Map();

/** A sale, read once; null where it cannot be read. */
const known = (id) => {
  if (!sales.has(id)) sales.set(id, saleOf(id).catch(() => null));
  return sales.get(id);
};

const card = (sale, one, about, badge, state, href, label) => h("li.card.trip",
  h("div", sale ? saleHead(sale, one.from, one.to) : "", h("p.small.soft", about.filter(Boolean).join(" · "))),
  h("p.row", h(`span.badge${badge ? `.${badge}` : ""}`, state), h("a.button.second", { href, "aria-label": label }, t("bookings.show"))));

async function orderCard(one) {
  const sale = await known(one.sale);
  const names = one.classes.map((id) => sale?.classes.find((each) => each.class === id)?.title ?? id).join(", ");
  return card(sale, one, [names, t("standby.seats", { n: one.quantity }), money(one.price)], orderBadges[one.state], t(`state.order.${one.state}`),
    link("order", { order: one.order }), `${t("bookings.show")}: ${t("order.title")} ${sale?.title ?? ""}`);
}

load(async () => {
  if (!signedIn()) return;
  const [{ bookings }, orders] = await Promise.all([get("hold"), get("standby").then((answer) => answer.orders, (problem) => {
    if (!problem.code) throw problem;
    notice(problem.message, "warn");
    return [];
  })]);
  $("#none").hidden = bookings.length + orders.length > 0;
  $("#standby").hidden = orders.length === 0;
  $("#booked").hidden = bookings.length === 0;
  const waits = new Map(orders.map((one) => [one.booking, one.order])); // a booking that standby made is paid for by itself
  show($("#orders"), await Promise.all(orders.map(orderCard)));
  show($("#list"), await Promise.all(bookings.map(async (one) => {
    const held = one.state === "held";
    const href = held && waits.has(one.booking) ? link("order", { order: waits.get(one.booking) }) : link(held ? "pay" : "booking", { booking: one.booking });
    return card(await known(one.sale), one, [one.locator, one.seats?.join(", "), money(one.price)], badges[one.state], t(`state.booking.${one.state}`),
      href, `${t("bookings.show")} ${one.locator}`);
  })));
});
