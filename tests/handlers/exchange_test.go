package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"handler/function/shared/account"
	"handler/function/shared/id"
	"handler/function/shared/problem"
)

// RESCHEDULE as it is called: its answers, its preview, its refusals by name, in
// the caller's language.
func TestReschedule(t *testing.T) {
	w := newWorld(t, "")
	ann, bob := w.token("ann", account.Customer), w.token("bob", account.Customer)
	organiser := w.token("org", account.Organiser)
	post := func(function string, header http.Header, body any) request {
		return request{function: function, method: http.MethodPost, body: body, header: header, query: url.Values{}}
	}
	d := saleDocument(nil)
	coach := func(name, class string) object {
		return object{"coach": name, "class": class, "seats": []any{
			object{"seat": "1A", "row": 1, "column": "A"}, object{"seat": "1B", "row": 1, "column": "B"}}}
	}
	d["classes"] = append(d["classes"].([]any), object{"class": "window", "title": "Window", "stock": "numbered", "fare": object{"kind": "per_leg", "amounts": []any{600, 600}}})
	d["coaches"] = []any{coach("1", "second"), coach("2", "second"), coach("3", "window")}
	sale := w.must(post("catalog", organiser, object{"sale": d}), "sale")
	held := w.must(post("hold", ann, object{"sale": sale, "class": "second", "from": "A", "to": "C", "seats": []any{"1-1A", "1-1B"}}), "booking")
	ids := id.New(w.ring("id-key"))
	saleID, number, err := ids.ParseBooking(held)
	if err != nil {
		t.Fatal(err)
	}
	// Paid for: the gateway of this test is nowhere.
	for _, sql := range []string{
		`SELECT seat_book(sale_id, number, seats, leg_from, leg_to) FROM booking WHERE sale_id = $1 AND number = $2`,
		`UPDATE booking SET state = 'booked' WHERE sale_id = $1 AND number = $2`,
	} {
		if _, err := w.services.DB.Owner.Exec(t.Context(), sql, saleID, number); err != nil {
			t.Fatal(err)
		}
	}
	to := func(change object) object {
		wish := object{"sale": sale, "class": "second", "from": "A", "to": "C"}
		for k, v := range change {
			wish[k] = v
		}
		return object{"type": "RESCHEDULE", "booking": held, "to": wish}
	}
	refused := func(header http.Header, body object, code problem.Code, field string) string {
		t.Helper()
		status, answer := w.send(post("release-event", header, body))
		var p struct {
			Code   string
			Errors []struct{ Field, Detail string }
		}
		if err := json.Unmarshal([]byte(answer), &p); err != nil || status != code.Status() || p.Code != string(code) ||
			field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != field) {
			t.Errorf("%v: %d %s, want %s %s", body["to"], status, answer, code, field)
		}
		return answer
	}
	refused(bob, to(object{"quantity": 2}), problem.NotFound, "")
	refused(ann, object{"type": "RESCHEDULE", "booking": held}, problem.Unprocessable, "to")
	refused(ann, object{"type": "REFUND", "booking": held, "to": object{}}, problem.Unprocessable, "to")
	refused(ann, to(object{"quantity": 3}), problem.Unprocessable, "to.quantity")
	refused(ann, to(object{"sale": "4711", "quantity": 2}), problem.Unprocessable, "to.sale")
	refused(ann, to(object{"colour": "red", "quantity": 2}), problem.BadRequest, "colour")
	refused(ann, to(object{"seats": []any{"2-1A", "9-9Z"}}), problem.Unprocessable, "to.seats[1]")
	chinese := http.Header{"Authorization": ann["Authorization"], "Accept-Language": {"zh"}}
	if s := refused(chinese, to(object{"to": "B", "quantity": 2}), problem.Unprocessable, "to"); !strings.Contains(s, "同价改签") || !strings.Contains(s, "CAD 24.00") {
		t.Errorf("in Chinese: %s", s)
	}

	wish := to(object{"class": "window", "quantity": 2})
	wish["preview"] = true
	type answer struct {
		Booking, State, Class, From, To string
		Seats, Released                 []string
		Quantity                        int
		Price                           struct{ Amount int }
		Preview                         bool
	}
	ask := func(header http.Header, body object) (a answer) {
		t.Helper()
		status, text := w.send(post("release-event", header, body))
		if err := json.Unmarshal([]byte(text), &a); status != http.StatusOK || err != nil {
			t.Fatalf("%d %s", status, text)
		}
		return a
	}
	preview := ask(ann, wish)
	if !preview.Preview || preview.Class != "window" || !slices.Equal(preview.Seats, []string{"3-1A", "3-1B"}) || preview.Price.Amount != 2400 {
		t.Errorf("preview %+v", preview)
	}
	delete(wish, "preview")
	key := http.Header{"Authorization": ann["Authorization"], "Idempotency-Key": {"once"}}
	done := ask(key, wish)
	preview.Preview = false
	if done.Booking != held || done.State != "booked" || !slices.Equal(done.Released, []string{"1-1A", "1-1B"}) || !slices.Equal(done.Seats, preview.Seats) {
		t.Errorf("done %+v", done)
	}
	if again := ask(key, wish); !slices.Equal(again.Seats, done.Seats) || again.Booking != done.Booking {
		t.Errorf("again %+v", again)
	}
	_, shown := w.send(request{function: "hold", method: http.MethodGet, header: ann, query: url.Values{"booking": {held}}})
	if !strings.Contains(shown, `"class":"window"`) || !strings.Contains(shown, `"exchanged"`) {
		t.Errorf("the booking reads %s", shown)
	}
	refused(ann, wish, problem.Unprocessable, "to") // has it
	// Both seats it had are free for others at once.
	w.must(post("hold", bob, object{"sale": sale, "class": "second", "from": "A", "to": "C", "seats": []any{"1-1A", "1-1B"}}), "booking")
	refused(ann, to(object{"seats": []any{"1-1A", "2-1A"}}), problem.SeatTaken, "to.seats[0]")
}
