package fn

import (
	"context"
	"net/netip"

	"handler/function/shared/problem"
	"handler/function/shared/queue"
)

// Limits of writes that reach Postgres (DESIGN section 9), of each function by
// itself. A person who taps as fast as they can stays under an account's; the one
// of an address is wide: an office or a carrier stands behind one (field case 56).
const (
	accountRate  = 5 // tokens a second
	accountBurst = 20
	addressRate  = 200
	addressBurst = 1000
)

// Buckets are the replica's token buckets, shared with other replicas through
// Redis.
func (a *App) Buckets() (*queue.Buckets, error) {
	return once(a, "buckets", func() (*queue.Buckets, error) {
		redis, err := a.Redis()
		if err != nil {
			return nil, err
		}
		return queue.NewBuckets(redis, nil), nil
	})
}

// Limit takes a token of the account and of its address for a write of a
// function; too-many-requests when there is none.
func (a *App) Limit(ctx context.Context, function, account string, client netip.Addr) error {
	buckets, err := a.Buckets()
	if err != nil {
		return err
	}
	ok, after := buckets.Take(ctx, function+":"+account, accountRate, accountBurst)
	if ok && client.IsValid() {
		if client.Is6() { // a household has a /64
			if p, err := client.Prefix(64); err == nil {
				client = p.Addr()
			}
		}
		ok, after = buckets.Take(ctx, function+"-from:"+client.String(), addressRate, addressBurst)
	}
	if !ok {
		return problem.New(problem.TooManyRequests, "Too many requests. Please wait a moment.").After(after)
	}
	return nil
}
