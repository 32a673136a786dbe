package fn

import (
	"io/fs"

	"handler/function/shared/booking"
	"handler/function/shared/sms"
	"handler/function/shared/standby"
	"handler/function/shared/ticket"
)

// Tickets shows, sends and checks in tickets. fonts is the folder of fonts that
// rides in the function ticket. Without the secret smtp-url no mail is sent,
// without sms-url no SMS.
func (a *App) Tickets(fonts fs.FS) (*ticket.Service, error) {
	return once(a, "tickets", func() (*ticket.Service, error) {
		o := ticket.Options{PublicURL: a.Config.PublicURL}
		var err error
		if o.DB, err = a.DB(); err != nil {
			return nil, err
		}
		sales, err := a.Sales()
		if err != nil {
			return nil, err
		}
		ids, err := a.IDs()
		if err != nil {
			return nil, err
		}
		// It only reads bookings and orders, so it needs no map of seats and no Redis.
		o.Sales, o.Bookings, o.Orders = sales, booking.New(o.DB, sales, nil, ids), standby.NewOrders(o.DB, ids, sales, nil)
		ring, err := a.Keys("ticket-key")
		if err != nil {
			return nil, err
		}
		if o.Signer, err = ticket.NewSigner(ring); err != nil {
			return nil, err
		}
		if o.Fonts, err = ticket.Fonts(fonts); err != nil {
			return nil, err
		}
		if o.Mail, err = a.Mail(); err != nil {
			return nil, err
		}
		if o.SMS, err = a.SMS(); err != nil {
			return nil, err
		}
		if o.Alerts, err = a.Alerts(); err != nil {
			return nil, err
		}
		if o.Box, err = a.Outbox(); err != nil {
			return nil, err
		}
		return ticket.New(o)
	})
}

// SMS sends short messages, as the secret sms-url says. nil without that secret.
func (a *App) SMS() (*sms.Sender, error) {
	return once(a, "sms", func() (*sms.Sender, error) {
		url, err := a.OptionalSecret("sms-url")
		if err != nil || url == "" {
			return nil, err
		}
		return sms.New(url)
	})
}
