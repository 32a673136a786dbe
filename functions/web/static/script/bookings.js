// All bookings of the account.
import { get } from "./api.js";
import { t } from "./text.js";
import { $, h, link, load, money, saleHead, saleOf, show, signedIn } from "./ui.js";

const badges = { held: "warn", booked: "good", expired: "bad", lost: "bad" };

load(async () => {
  if (!signedIn()) return;
  const { bookings } = await get("hold");
  $("#none").hidden = bookings.length > 0;
  const sales = new Map();
  for (const id of new Set(bookings.map((one) => one.sale))) sales.set(id, saleOf(id).catch(() => null));
  show($("#list"), await Promise.all(bookings.map(async (one) => {
    const sale = await sales.get(one.sale);
    return h("li.card.trip",
      h("div", sale ? saleHead(sale, one.from, one.to) : "", h("p.small.soft", [one.locator, one.seats?.join(", "), money(one.price)].filter(Boolean).join(" · "))),
      h("p.row", h(`span.badge${badges[one.state] ? `.${badges[one.state]}` : ""}`, t(`state.booking.${one.state}`)),
        h("a.button.second", { href: link(one.state === "held" ? "pay" : "booking", { booking: one.booking }), "aria-label": `${t("bookings.show")} ${one.locator}` }, t("bookings.show"))));
  })));
});
