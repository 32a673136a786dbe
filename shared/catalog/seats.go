package catalog

import (
	"context"
	"fmt"
	"strings"

	"handler/function/shared/idempotency"
	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

// Postgres's refusal of a move of a seat (migrations/00002_seat.sql).
const notFree = "HF001"

func join(attributes []string) string { return strings.Join(attributes, ",") }

// Added is the answer of add_seats.
type Added struct {
	Sale  string   `json:"sale"`
	Added []string `json:"added"`
}

// Blocked is the answer of block and unblock.
type Blocked struct {
	Sale      string   `json:"sale"`
	Blocked   []string `json:"blocked,omitempty"`
	Unblocked []string `json:"unblocked,omitempty"`
}

// addSeats makes extra seats of a class there is; each is an EXTRA_SEAT release.
func (s *Service) addSeats(ctx context.Context, who Caller, sale *Sale, extra Extra) (idempotency.Answer, error) {
	return s.inSale(ctx, sale.ID, who, func(ctx context.Context, tx pgx.Tx) (any, error) {
		now, err := lock(ctx, tx, sale.ID)
		if err != nil {
			return nil, err
		}
		var f faults
		list := []Coach{{Coach: extra.Coach, Class: extra.Class, Seats: extra.Seats}}
		classes := make(map[string]int)
		for _, c := range now.Classes {
			classes[c.ID] = 0
		}
		taken := func(name string) bool { _, ok := now.SeatNumber(name); return ok }
		validateCoach(f.at("add_seats"), list[0], classes, len(now.Places), map[string]bool{}, taken)
		if err := f.err(); err != nil {
			return nil, err
		}
		if now.State == Cancelled {
			return nil, problem.New(problem.WrongState, "This sale is cancelled.")
		}
		added := places(list, len(now.Places)+1)
		if err := insertSeats(ctx, tx, now.ID, now.Legs, added, true); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, sql["raise-version"], now.ID); err != nil {
			return nil, err
		}
		answer := Added{Sale: now.IDString()}
		for _, p := range added {
			answer.Added = append(answer.Added, p.Name())
		}
		return answer, nil
	})
}

// seats reads a block: numbers in order of the request, and the legs.
func (b Block) seats(sale *Sale, field string) (numbers []int32, from, to int, err error) {
	var f faults
	at := f.at(field)
	at.text("reason", b.Reason, 0, maxText)
	at.check(len(b.Seats) > 0 && len(b.Seats) <= maxBlocked, "seats", "must have 1 to %d entries", maxBlocked)
	seen := make(map[string]bool, len(b.Seats))
	for i, name := range b.Seats {
		n, ok := sale.SeatNumber(name)
		at.check(ok && !seen[name], fmt.Sprintf("seats[%d]", i), "must be a seat of this sale, named once")
		seen[name] = true
		numbers = append(numbers, int32(n))
	}
	if err := f.err(); err != nil {
		return nil, 0, 0, err
	}
	if b.From == "" && b.To == "" {
		return numbers, 1, sale.Legs, nil
	}
	from, to, err = sale.legs(b.From, b.To)
	return numbers, from, to, err
}

// block keeps seats from sale: bookings of the account `house`, all or none.
func (s *Service) block(ctx context.Context, who Caller, sale *Sale, b Block) (idempotency.Answer, error) {
	numbers, from, to, err := b.seats(sale, "block")
	if err != nil {
		return idempotency.Answer{}, err
	}
	until := (&Document{Kind: sale.Kind, Stops: sale.Stops}).end().Add(blockedAfter)
	return s.inSale(ctx, sale.ID, who, func(ctx context.Context, tx pgx.Tx) (any, error) {
		if !s.clock.Now().Before(until) {
			return nil, problem.New(problem.SaleClosed, "This sale is closed.")
		}
		_, err := tx.Exec(ctx, sql["block"], sale.ID, numbers, from, to, until, b.Reason)
		if store.State(err) == notFree {
			return nil, problem.New(problem.SeatTaken, "A seat is taken on these legs; none was blocked.")
		}
		return Blocked{Sale: sale.IDString(), Blocked: b.Seats}, err
	})
}

// unblock gives seats back that were blocked on exactly these legs, all or none;
// each is an EXTRA_SEAT release.
func (s *Service) unblock(ctx context.Context, who Caller, sale *Sale, b Block, trace string) (idempotency.Answer, error) {
	numbers, from, to, err := b.seats(sale, "unblock")
	if err != nil {
		return idempotency.Answer{}, err
	}
	return s.inSale(ctx, sale.ID, who, func(ctx context.Context, tx pgx.Tx) (any, error) {
		var n int
		if err := tx.QueryRow(ctx, sql["unblock"], sale.ID, numbers, from, to, b.Reason, trace).Scan(&n); err != nil {
			return nil, err
		}
		if n != len(numbers) {
			return nil, problem.New(problem.WrongState, "Of these seats only %d are blocked on exactly these legs; none was unblocked.", n)
		}
		return Blocked{Sale: sale.IDString(), Unblocked: b.Seats}, nil
	})
}
