package ticket

import (
	"context"
	"fmt"

	"handler/function/shared/outbox"
	"handler/function/shared/standby"
	"handler/function/shared/text"
)

// Orders reads standby orders: *standby.Orders.
type Orders interface {
	Load(ctx context.Context, sale, number int64) (*standby.Order, error)
}

// orderTemplates are the notices for a standby order that has no booking (any
// more), by name. Their arguments are what was waited for, and why it ended.
var orderTemplates = map[string]template{
	"standby_cancelled": {
		subject: "Standby for %[1]s has ended",
		body:    "Your standby order for %[1]s was cancelled: %[2]s. You are not charged.",
	},
	"standby_expired": {
		subject: "Standby for %[1]s has ended",
		body:    "Your standby order for %[1]s has ended: %[2]s. You are not charged.",
	},
	"standby_failed": {
		subject: "Standby for %[1]s did not succeed",
		body:    "Seats for %[1]s were found, but we could not book them: %[2]s. Anything that was charged comes back to you.",
	},
}

// NotifyOrder writes a notice for the holder of an order that waited for what t
// names.
func NotifyOrder(t *Ticket, n Notice) (Message, error) {
	tpl, ok := orderTemplates[n.Template]
	if !ok {
		return Message{}, fmt.Errorf("ticket: no template %q of an order", n.Template)
	}
	what := t.Heading()
	if t.From.Name != "" && t.To.Name != "" {
		what += ", " + t.From.Name + " → " + t.To.Name
	}
	if d, ok := t.day(); ok {
		what += ", " + date(t.Lang, d)
	}
	reason := n.Data.Reason
	if reason != "" {
		reason = text.Sprintf(t.Lang, reason)
	}
	m := Message{Subject: text.Sprintf(t.Lang, tpl.subject, what, reason), Short: text.Sprintf(t.Lang, tpl.body, what, reason)}
	m.Text = m.Short + "\n"
	return m, nil
}

// sendOrderNotice tells the holder of an order what became of it.
func (s *Service) sendOrderNotice(ctx context.Context, row outbox.Row, n Notice) error {
	if s.orders == nil {
		return fmt.Errorf("ticket: nobody to read order %d of sale %d", n.Order, row.Sale)
	}
	o, err := s.orders.Load(ctx, row.Sale, n.Order)
	if err != nil {
		return fmt.Errorf("ticket: order %d of sale %d: %w", n.Order, row.Sale, err)
	}
	sale, err := s.sales.Sale(ctx, row.Sale)
	if err != nil {
		return fmt.Errorf("ticket: sale %d: %w", row.Sale, err)
	}
	m, err := NotifyOrder(&Ticket{
		Sale: o.Sale, Kind: sale.Kind, Title: sale.Title, Number: sale.Number, ServiceDate: sale.ServiceDate,
		From: call(sale, o.LegFrom-1, true), To: call(sale, o.LegTo, false), Lang: text.Match(o.Contact.Language),
	}, n)
	if err != nil {
		return err
	}
	return s.deliver(ctx, row, o.Contact, m, nil)
}
