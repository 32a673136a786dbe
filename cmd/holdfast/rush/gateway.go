package rush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"handler/function/cmd/holdfast/wire"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

// gateway is the sandbox gateway's API beside the functions: where the crowd
// types its cards in, and where the money is counted afterwards.
type gateway struct {
	w *wire.Client
}

const gatewayAPI = "/dev/gateway/api/payments/"

// succeed pays a payment, as its payer would.
func (g *gateway) succeed(ctx context.Context, reference string) error {
	a, err := g.w.Do(ctx, "POST", gatewayAPI+url.PathEscape(reference)+"/act", nil, []byte(`{"do":"succeed"}`), nil)
	if err != nil {
		return err
	}
	if a.OK() {
		return nil
	}
	// A first try whose answer was lost may have acted.
	if p, err := g.payment(ctx, reference); err == nil && p.Status == payment.Succeeded {
		return nil
	}
	return errors.New(reason(a, nil) + ": " + short(a.Body))
}

func (g *gateway) payment(ctx context.Context, reference string) (sandbox.Payment, error) {
	var p sandbox.Payment
	a, err := g.w.Do(ctx, "GET", gatewayAPI+url.PathEscape(reference), nil, nil, nil)
	if err != nil {
		return p, err
	}
	if !a.OK() {
		return p, errors.New(reason(a, nil))
	}
	return p, json.Unmarshal(a.Body, &p)
}

// account compares the money with the tickets: a booking with a ticket is paid
// exactly once, and money without a ticket has gone back. Refunds are due
// within refundsWithin, because they are made from the outbox.
const refundsWithin = 60 * time.Second

func (g *gateway) account(ctx context.Context, payments []paid, ticketed map[string]bool) (paidBookings int, faults []string) {
	deadline := time.Now().Add(refundsWithin)
	kept := map[string]int64{}
	price := map[string]int64{}
	for _, p := range payments {
		for {
			at, err := g.payment(ctx, p.reference)
			if err != nil {
				faults = append(faults, fmt.Sprintf("payment %s cannot be looked up: %v", p.reference, err))
				break
			}
			net := at.Captured - at.Refunded
			if !ticketed[p.booking] && net != 0 && time.Now().Before(deadline) {
				if !sleepUntil(ctx, time.Now().Add(time.Second)) {
					break
				}
				continue
			}
			kept[p.booking] += net
			price[p.booking] = p.amount
			break
		}
	}
	for b := range ticketed {
		if _, ok := price[b]; !ok {
			faults = append(faults, fmt.Sprintf("booking %s has a ticket and no payment", b))
		}
	}
	for b, net := range kept {
		switch {
		case ticketed[b] && net == price[b]:
			paidBookings++
		case ticketed[b]:
			faults = append(faults, fmt.Sprintf("booking %s costs %d and %d was kept at the gateway", b, price[b], net))
		case net != 0:
			faults = append(faults, fmt.Sprintf("booking %s has no ticket and %d was kept at the gateway", b, net))
		}
	}
	return paidBookings, faults
}
