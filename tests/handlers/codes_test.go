package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/problem"
	"handler/function/shared/room"
)

// Every code of the contract's table is seen as an answer at least once, with
// the status that the table gives it.
func TestEveryCode(t *testing.T) {
	// A gateway that never answers, so that a payment stays in progress.
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		select {
		case <-release:
		case <-r.Context().Done():
		}
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer gateway.Close()
	w := newWorld(t, gateway.URL)
	organiser := w.token("org", account.Organiser)
	ann, bob := w.token("ann", account.Customer), w.token("bob", account.Customer)
	post := func(function string, header http.Header, body any) request {
		return request{function: function, method: http.MethodPost, body: body, header: header, query: url.Values{}}
	}
	get := func(function string, header http.Header, query string) request {
		q, _ := url.ParseQuery(query)
		return request{function: function, method: http.MethodGet, header: header, query: q}
	}
	with := func(h http.Header, name, value string) http.Header {
		c := h.Clone()
		c.Set(name, value)
		return c
	}
	sale := func(change func(d object)) string {
		d := saleDocument(nil)
		if change != nil {
			change(d)
		}
		return w.must(post("catalog", organiser, object{"sale": d}), "sale")
	}
	want := func(code problem.Code, r request) {
		t.Helper()
		status, body := w.send(r)
		var p struct{ Code string }
		_ = json.Unmarshal([]byte(body), &p)
		if p.Code != string(code) || status != code.Status() {
			t.Errorf("want %d %s, got %d %s", code.Status(), code, status, body)
		}
	}
	seats := func(sale string, seats ...any) object {
		return object{"sale": sale, "class": "second", "from": "A", "to": "C", "seats": seats}
	}
	any := func(sale string, n int) object {
		return object{"sale": sale, "class": "second", "from": "A", "to": "C", "quantity": n}
	}
	few := func(d object, n int) {
		coach := d["coaches"].([]interface{})[0].(object)
		coach["seats"] = coach["seats"].([]interface{})[:n]
	}
	open := sale(nil)

	want(problem.BadRequest, post("hold", ann, object{"sale": open, "colour": "red"}))
	want(problem.BadSignature, request{function: "confirm", method: http.MethodPost, query: url.Values{"gateway": {"sandbox"}},
		header: http.Header{"Sandbox-Signature": {"t=1,v1=00"}}, body: object{"id": "e", "type": "payment.succeeded"}})
	want(problem.Unauthenticated, post("hold", nil, any(open, 1)))
	want(problem.BadToken, post("hold", http.Header{"Authorization": {"Bearer x.y.z"}}, any(open, 1)))
	want(problem.Forbidden, post("catalog", ann, object{"sale": saleDocument(nil)}))
	want(problem.NotFound, get("hold", ann, "booking=B0000000000"))
	want(problem.Unprocessable, post("hold", ann, any(open, 0)))
	want(problem.LimitReached, post("hold", ann, any(open, 7)))

	held := w.must(post("hold", ann, seats(open, "1-1A")), "booking")
	want(problem.SeatTaken, post("hold", bob, seats(open, "1-1A")))
	want(problem.WrongState, post("release-event", ann, object{"type": "REFUND", "booking": held}))
	want(problem.NotFound, post("release-event", bob, object{"type": "ABANDON", "booking": held}))
	key := with(bob, "Idempotency-Key", "mismatch")
	w.must(post("hold", key, any(open, 1)), "booking")
	want(problem.IdempotencyMismatch, post("hold", key, any(open, 2)))

	one := sale(func(d object) { few(d, 1) })
	last := w.must(post("hold", ann, any(one, 1)), "booking")
	want(problem.SoldOut, post("hold", bob, any(one, 1)))
	// A standby order waits: what comes free is offered to it first.
	saleID, err := strconv.ParseInt(one, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	w.services.DB.QueueOrder(t, saleID, "waits", "second", 1, 1, 1)
	w.must(post("release-event", ann, object{"type": "ABANDON", "booking": last}), "booking")
	want(problem.StandbyFirst, post("hold", bob, any(one, 1)))

	short := sale(func(d object) { d["hold_seconds"], d["extend_seconds"] = 1, 0 })
	ended := w.must(post("hold", ann, any(short, 1)), "booking")
	eventually(t, func() bool {
		_, body := w.send(get("hold", ann, "booking="+ended))
		var b struct {
			EndsAt     time.Time `json:"ends_at"`
			ServerTime time.Time `json:"server_time"`
		}
		return json.Unmarshal([]byte(body), &b) == nil && b.ServerTime.After(b.EndsAt)
	})
	want(problem.HoldEnded, post("pay", ann, object{"booking": ended, "gateway": "sandbox"}))

	later := sale(func(d object) { d["opens_at"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339) })
	want(problem.NotOpenYet, post("hold", ann, any(later, 1)))
	paused := sale(nil)
	w.must(post("catalog", organiser, object{"sale": paused, "patch": object{"state": "paused"}}), "sale")
	eventually(t, func() bool {
		status, _ := w.send(post("hold", ann, any(paused, 1)))
		return status == http.StatusServiceUnavailable
	})
	want(problem.Paused, post("hold", ann, any(paused, 1)))
	closed := sale(nil)
	w.must(post("catalog", organiser, object{"sale": closed, "patch": object{"state": "closed"}}), "sale")
	eventually(t, func() bool {
		status, _ := w.send(post("hold", ann, any(closed, 1)))
		return status == http.StatusConflict
	})
	want(problem.SaleClosed, post("hold", ann, any(closed, 1)))

	roomed := w.must(post("catalog", organiser, object{"sale": saleDocument(object{"mode": "on",
		"draw_opens_at": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "draw_seconds": 30})}), "sale")
	want(problem.AdmitRequired, post("hold", ann, any(roomed, 1)))
	var shown struct{ Room string }
	_, body := w.send(get("catalog", nil, "sale="+roomed))
	if err := json.Unmarshal([]byte(body), &shown); err != nil || shown.Room == "" {
		t.Fatalf("the sale has no room: %s", body)
	}
	tokens := room.NewTokens(w.ring("room-key"), nil)
	admit := func(account string, ends time.Time) string {
		var id int64
		_, _ = fmt.Sscan(shown.Room, &id)
		s, err := tokens.IssueAdmit(room.Admit{Room: id, Generation: 1, Account: account, Admission: 1, For: "hold", Issued: ends.Add(-time.Minute), Ends: ends})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want(problem.AdmitExpired, post("hold", with(ann, "Admit-Token", admit("ann", time.Now().Add(-time.Second))), any(roomed, 1)))
	want(problem.AdmitOther, post("hold", with(ann, "Admit-Token", admit("bob", time.Now().Add(time.Minute))), any(roomed, 1)))

	place := w.must(post("join-room", ann, object{"sale": roomed}), "place_token")
	w.must(post("catalog", organiser, object{"room": shown.Room, "reset": true}), "room")
	eventually(t, func() bool {
		status, _ := w.send(post("join-room", with(ann, "Place-Token", place), object{"sale": roomed}))
		return status == http.StatusGone
	})
	want(problem.RoomReset, post("join-room", with(ann, "Place-Token", place), object{"sale": roomed}))
	// An admission of the room as it was before does not pass the line of now.
	bob1 := with(bob, "Admit-Token", admit("bob", time.Now().Add(time.Minute)))
	eventually(t, func() bool {
		status, _ := w.send(post("hold", bob1, any(roomed, 1)))
		return status == http.StatusGone
	})
	want(problem.RoomReset, post("hold", bob1, any(roomed, 1)))
	for range 200 {
		if status, _ := w.send(post("join-room", bob, object{"sale": roomed})); status == http.StatusTooManyRequests {
			break
		}
	}
	want(problem.Unavailable, post("sign-in", nil, object{"email": "ann@example.org"})) // no mail server

	pay := post("pay", with(ann, "Idempotency-Key", "slow"), object{"booking": held, "gateway": "sandbox"})
	first := make(chan struct{})
	go func() {
		defer close(first)
		h := pay.header
		_, _ = w.handlers["pay"](rawRequest(pay, h))
	}()
	select {
	case <-asked:
	case <-time.After(10 * time.Second):
		t.Fatal("the gateway was not asked")
	}
	want(problem.InProgress, pay)
	close(release)
	<-first

	for _, c := range problem.Codes() {
		if c != problem.Internal && w.codes[string(c)] == 0 {
			t.Errorf("the code %s was not seen", c)
		}
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not come about in 15 s")
}
