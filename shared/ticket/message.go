package ticket

import (
	"encoding/json"
	"fmt"
	"strings"

	"handler/function/shared/money"
	"handler/function/shared/text"
)

// Notice is a message to a customer other than the ticket: the payload of an
// outbox row of kind `notify`.
type Notice struct {
	Booking  int64      `json:"booking"`
	Order    int64      `json:"order"` // the standby order it is about; without a booking it goes to its holder
	Template string     `json:"template"`
	Data     NoticeData `json:"data"`
}

// NoticeData is what a template may name. Fields a template does not need stay
// empty.
type NoticeData struct {
	Amount *money.Amount `json:"amount,omitempty"` // refunded
	Fee    *money.Amount `json:"fee,omitempty"`    // kept
	Seats  []string      `json:"seats,omitempty"`
	Reason string        `json:"reason,omitempty"` // why an order ended: English, a key of the catalogue of texts
}

// template is the text of a notice. Every text has the locator and the heading
// as its first two arguments; amount says whether the refund is the third, seats
// whether the names of the booking's seats are.
type template struct {
	subject, body string
	amount, seats bool
}

// templates are the notices there are, by name.
var templates = map[string]template{
	"refunded": {
		subject: "Refund for booking %[1]s",
		body:    "Your booking %[1]s (%[2]s) was given back. We have sent %[3]s to the account you paid from; your bank may need a few days to show it.",
		amount:  true,
	},
	"lost": {
		subject: "Booking %[1]s could not be made",
		body:    "Your payment for booking %[1]s (%[2]s) reached us after the hold had ended, and the seats were gone. We have sent %[3]s, the whole amount, back to the account you paid from; your bank may need a few days to show it.",
		amount:  true,
	},
	"double_payment": {
		subject: "Booking %[1]s was paid twice",
		body:    "Your booking %[1]s (%[2]s) was paid twice. It stands, and we have sent %[3]s, the second payment, back to the account you paid from.",
		amount:  true,
	},
	"exchanged": {
		subject: "Booking %[1]s was exchanged",
		body:    "Your booking %[1]s (%[2]s) was exchanged at the same price. The new ticket comes by itself; the old one lets nobody in any more.",
	},
	"standby_matched": {
		subject: "Standby successful: %[2]s",
		body:    "Standby successful. Your booking is %[1]s (%[2]s), seats %[3]s. It is paid for, and the ticket comes by itself.",
		seats:   true,
	},
	"sale_cancelled": {
		subject: "%[2]s is cancelled",
		body:    "We are sorry: %[2]s is cancelled, and with it your booking %[1]s. You get back all you paid without doing anything.",
	},
}

// Message is a text for a mail and one for an SMS.
type Message struct {
	Subject, Text, Short string
}

// Notify writes a notice for the customer of t.
func Notify(t *Ticket, n Notice) (Message, error) {
	tpl, ok := templates[n.Template]
	if !ok {
		return Message{}, fmt.Errorf("ticket: no template %q", n.Template)
	}
	args := []any{t.Locator, t.Heading()}
	body := args
	if tpl.amount {
		if n.Data.Amount == nil {
			return Message{}, fmt.Errorf("ticket: template %q needs an amount", n.Template)
		}
		body = append(args[:2:2], n.Data.Amount.String())
	}
	if tpl.seats {
		body = append(args[:2:2], strings.Join(t.seatNames(), ", "))
	}
	m := Message{Subject: text.Sprintf(t.Lang, tpl.subject, args...), Short: text.Sprintf(t.Lang, tpl.body, body...)}
	lines := []string{m.Short}
	if n.Data.Fee != nil && n.Data.Fee.Amount > 0 {
		lines = append(lines, text.Sprintf(t.Lang, "Fee kept: %s", n.Data.Fee.String()))
	}
	if len(n.Data.Seats) > 0 {
		lines = append(lines, text.Sprintf(t.Lang, "Seats: %s", strings.Join(n.Data.Seats, ", ")))
	}
	m.Text = strings.Join(lines, "\n\n") + "\n"
	return m, nil
}

// Confirmation writes the message that goes with the ticket; publicURL is the
// gateway as customers see it, or empty.
func Confirmation(t *Ticket, publicURL string) Message {
	subject := t.Heading()
	if d, ok := t.day(); ok {
		subject += ", " + date(t.Lang, d)
	}
	lines := append([]string{
		text.Sprintf(t.Lang, "Your booking is made. The ticket is attached: show its code at the gate, printed or on a screen."), "",
		t.Heading(),
	}, t.describe()...)
	if publicURL != "" {
		lines = append(lines, "", text.Sprintf(t.Lang, "Your bookings: %s", publicURL+"/function/web"))
	}
	short := []string{t.Locator, t.Heading()}
	if t.From.Time != nil {
		short = append(short, t.From.Time.Format("2006-01-02 15:04"))
	} else {
		short = append(short, t.ServiceDate)
	}
	if t.From.Name != "" && t.To.Name != "" {
		short = append(short, t.From.Name+" → "+t.To.Name)
	}
	short = append(short, text.Sprintf(t.Lang, "Seats: %s", strings.Join(t.seatNames(), ", ")))
	return Message{
		Subject: text.Sprintf(t.Lang, "Your ticket %s: %s", t.Locator, subject),
		Text:    strings.Join(lines, "\n") + "\n",
		Short:   strings.Join(short, "; "),
	}
}

// seatNames are the seats as people call them.
func (t *Ticket) seatNames() []string {
	names := make([]string, len(t.Seats))
	for i := range t.Seats {
		names[i] = t.Seats[i].Name
		if names[i] == "" {
			names[i] = place(t, &t.Seats[i])
		}
	}
	return names
}

// Bind reads a notice and checks that its template is known.
func (n *Notice) Bind(payload json.RawMessage) error {
	if err := json.Unmarshal(payload, n); err != nil {
		return fmt.Errorf("ticket: notice: %w", err)
	}
	known := templates
	if n.Booking == 0 && n.Order != 0 {
		known = orderTemplates
	}
	if _, ok := known[n.Template]; !ok {
		return fmt.Errorf("ticket: no template %q", n.Template)
	}
	return nil
}
