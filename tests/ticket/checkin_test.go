package ticket

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"handler/function/shared/account"
	"handler/function/shared/booking"
	"handler/function/shared/problem"
	"handler/function/shared/ticket"
)

var gate = account.Account{ID: "gate-1", Role: account.Gate, Org: "via"}

// codes are the codes of a booking's tickets.
func (w *world) codes(number int64) []string {
	w.Helper()
	b, err := w.books.Load(w.ctx, w.sale, number)
	if err != nil {
		w.Fatal(err)
	}
	sale, err := w.sales.Sale(w.ctx, w.sale)
	if err != nil {
		w.Fatal(err)
	}
	t, err := ticket.Build(sale, b, w.signer)
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, s := range t.Seats {
		all = append(all, s.QR)
	}
	return all
}

func (w *world) scanned(s *ticket.Service, who account.Account, code, id string) ticket.Scan {
	w.Helper()
	a, err := s.CheckIn(w.ctx, who, code, id)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func TestCheckIn(t *testing.T) {
	w := setup(t)
	s := w.service()
	codes := w.codes(w.book(two, booking.Contact{}, 2, 3))
	first := w.scanned(s, gate, codes[1], "s1")
	if first.Result != ticket.Valid || first.Seat != "3-3A" || first.Passenger != "Zoë" || first.FirstScannedAt == nil {
		t.Errorf("%+v", first)
	}
	again := w.scanned(s, gate, codes[1], "s1")
	if again.Result != first.Result || !again.FirstScannedAt.Equal(*first.FirstScannedAt) {
		t.Errorf("the same scan: %+v, then %+v", first, again)
	}
	used := w.scanned(s, gate, codes[1], "s2")
	if used.Result != ticket.Used || !used.FirstScannedAt.Equal(*first.FirstScannedAt) || used.Passenger != "Zoë" {
		t.Errorf("%+v", used)
	}
	// Another gate may use the same scan_id for itself.
	if a := w.scanned(s, account.Account{ID: "gate-2", Role: account.Gate}, codes[0], "s1"); a.Result != ticket.Valid || a.Passenger != "张伟" {
		t.Errorf("%+v", a)
	}
	if _, err := s.CheckIn(w.ctx, gate, codes[0], "s1"); !problem.Is(err, problem.IdempotencyMismatch) {
		t.Errorf("a scan_id for another ticket: %v", err)
	}
	if _, err := s.CheckIn(w.ctx, account.Account{ID: "ana"}, codes[0], "s9"); !problem.Is(err, problem.Forbidden) {
		t.Errorf("without the role: %v", err)
	}
	if a := w.scanned(s, account.Account{ID: "gate-3", Role: account.Gate, Org: "other"}, codes[0], "s1"); a.Result != ticket.Invalid || a.Reason != "other-organiser" {
		t.Errorf("%+v", a)
	}
}

func TestCheckInRefuses(t *testing.T) {
	w := setup(t)
	s := w.service()
	number := w.book(two[:1], booking.Contact{}, 1)
	code := w.codes(number)[0]
	for name, bad := range map[string]string{"not ours": "HF1AAAA", "other text": "hello", "changed": strings.Replace(code, code[20:22], "77", 1)} {
		if a := w.scanned(s, gate, bad, "x"); a.Result != ticket.Invalid || a.Reason != "not-a-ticket" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	sign := func(p ticket.Pass) string {
		c, err := w.signer.Sign(p)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	good := ticket.Pass{Sale: w.sale, Booking: number, Serial: 1, Seat: 1, SeatName: "3-1A", FirstLeg: 1, LastLeg: 2, ServiceDate: "2026-12-24"}
	for name, c := range map[string]struct {
		change func(*ticket.Pass)
		reason string
	}{
		"unknown sale":    {func(p *ticket.Pass) { p.Sale = 99999 }, "unknown"},
		"unknown booking": {func(p *ticket.Pass) { p.Booking++ }, "unknown"},
		"other seat":      {func(p *ticket.Pass) { p.Seat = 5 }, "changed"},
		"other legs":      {func(p *ticket.Pass) { p.LastLeg = 1 }, "changed"},
		"no such unit":    {func(p *ticket.Pass) { p.Seat, p.Serial = 0, 2 }, "changed"},
	} {
		p := good
		c.change(&p)
		for range 2 {
			if a := w.scanned(s, gate, sign(p), "scan "+name); a.Result != ticket.Invalid || a.Reason != c.reason {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	w.exec(`SELECT cancel_booking($1, $2, 'ana', '', '')`, w.sale, number)
	if a := w.scanned(s, gate, code, "s1"); a.Result != ticket.Invalid || a.Reason != "refunded" {
		t.Errorf("%+v", a)
	}
}

// Of many scans of one ticket at once one is valid; of many with one scan_id all
// say the same.
func TestParallelScans(t *testing.T) {
	w := setup(t)
	s := w.service()
	codes := w.codes(w.book(two, booking.Contact{}, 1, 2))
	results := func(code string, id func(i int) string) map[ticket.Result]int {
		var mu sync.Mutex
		var wait sync.WaitGroup
		n := map[ticket.Result]int{}
		for i := range 20 {
			wait.Go(func() {
				a, err := s.CheckIn(w.ctx, gate, code, id(i))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				n[a.Result]++
			})
		}
		wait.Wait()
		return n
	}
	if n := results(codes[0], func(i int) string { return fmt.Sprint(i) }); n[ticket.Valid] != 1 || n[ticket.Used] != 19 {
		t.Errorf("%v", n)
	}
	if n := results(codes[1], func(int) string { return "same" }); n[ticket.Valid] != 20 {
		t.Errorf("%v", n)
	}
}

// A refund for the holder and a check-in at the same moment: one of them.
func TestRefundOrCheckIn(t *testing.T) {
	w := setup(t)
	s := w.service()
	for seat := 1; seat <= 6; seat++ {
		number := w.book(two[:1], booking.Contact{}, seat)
		code := w.codes(number)[0]
		var wait sync.WaitGroup
		var let ticket.Scan
		var refund string
		wait.Go(func() { let = w.scanned(s, gate, code, fmt.Sprint(seat)) })
		wait.Go(func() {
			if err := w.db.App.QueryRow(context.Background(), `SELECT booking_refund($1, $2, 'ana', false, '')->>'code'`, w.sale, number).Scan(&refund); err != nil {
				t.Error(err)
			}
		})
		wait.Wait()
		if (let.Result == ticket.Valid) == (refund == "cancelled") {
			t.Errorf("seat %d: scanned %+v, refund %s", seat, let, refund)
		}
	}
}
