package ticket

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"handler/function/shared/booking"
	"handler/function/shared/catalog"
	"handler/function/shared/money"
	"handler/function/shared/text"
)

func at(t testing.TB, s string) *time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return &v
}

// ocean is a train across two zones whose second day begins underway.
func ocean(t testing.TB) *catalog.Sale {
	t.Helper()
	return &catalog.Sale{
		ID: 12, Kind: catalog.Train, Title: "Ocean", Number: "15", ServiceDate: "2026-12-24", Timezone: "America/Toronto", Currency: "CAD", Legs: 2,
		Stops: []catalog.Stop{
			{ID: "HLFX", Name: "Halifax", Timezone: "America/Halifax", Departs: at(t, "2026-12-24T17:00:00Z"), Board: catalog.CallYes},
			{ID: "MCTN", Name: "Moncton", Timezone: "America/Moncton", Board: catalog.CallRequest, Alight: catalog.CallYes},
			{ID: "MTRL", Name: "Montréal", Timezone: "America/Toronto", Arrives: at(t, "2026-12-25T15:03:00Z"), Alight: catalog.CallYes},
		},
		Classes: []catalog.Class{{ID: "economy", Title: "Economy", Stock: "numbered"}, {ID: "bike", Title: "Bicycle", Stock: "counted"}},
		Places: []catalog.SeatPlace{
			{Number: 1, Class: "economy", Coach: "3", Seat: "12A"}, {Number: 2, Class: "economy", Coach: "3", Seat: "12B"},
		},
	}
}

func booked(t testing.TB) *booking.Booking {
	t.Helper()
	return &booking.Booking{
		Sale: 12, Number: 345, Locator: "K7QM2X9RT4WX", Class: "economy", From: "HLFX", To: "MTRL", LegFrom: 1, LegTo: 2,
		Seats: []string{"3-12A", "3-12B"}, SeatNumbers: []int{1, 2}, Quantity: 2, State: booking.Booked,
		Price: money.Amount{Amount: 25800, Currency: "CAD"}, MadeAt: *at(t, "2026-11-30T12:00:00Z"),
		History:    []booking.Event{{At: *at(t, "2026-11-30T12:01:00Z"), What: "booked"}},
		Passengers: []booking.Passenger{{Name: "张伟"}, {Name: "Zoë", Category: "child"}},
		Contact:    booking.Contact{Email: "zoe@example.org", Language: "zh-CN"},
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	s := testSigner(t, "a")
	tk, err := Build(ocean(t), booked(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if tk.Lang != text.Chinese || tk.Class != "Economy" || tk.Heading() != "Ocean 15" || !tk.Issued.Equal(*at(t, "2026-11-30T12:01:00Z")) {
		t.Errorf("%+v", tk)
	}
	if got := tk.From.Time.Format(time.RFC3339); got != "2026-12-24T13:00:00-04:00" {
		t.Errorf("departure in its own zone: %s", got)
	}
	if got := zone(*tk.To.Time); got != "EST, UTC-5" {
		t.Errorf("zone: %s", got)
	}
	for i, seat := range tk.Seats {
		p, err := Verify(s.Public(), seat.QR)
		if err != nil || p.Sale != 12 || p.Booking != 345 || p.Serial != i+1 || p.Seat != i+1 || p.SeatName != seat.Name || p.ServiceDate != "2026-12-24" {
			t.Errorf("seat %d: %+v, %v", i, p, err)
		}
	}
	if tk.Seats[1].Passenger != "Zoë" || tk.Seats[1].Name != "3-12B" {
		t.Errorf("%+v", tk.Seats[1])
	}
}

func TestBuildCounted(t *testing.T) {
	t.Parallel()
	b := booked(t)
	b.Class, b.Seats, b.SeatNumbers, b.LegFrom = "bike", nil, nil, 2
	tk, err := Build(ocean(t), b, testSigner(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if len(tk.Seats) != 2 || tk.Seats[0].Number != 0 || tk.Seats[1].Serial != 2 || tk.From.Time != nil || !tk.From.Request {
		t.Errorf("%+v", tk)
	}
	if _, err := Build(ocean(t), b, testSigner(t, "a")); err != nil {
		t.Error(err)
	}
}

func TestCalendar(t *testing.T) {
	t.Parallel()
	b := booked(t)
	b.Passengers[0].Name = "A, B; C\\D\nE " + strings.Repeat("长", 60)
	tk, err := Build(ocean(t), b, testSigner(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	file := string(Calendar(tk))
	for _, line := range strings.Split(strings.TrimSuffix(file, "\r\n"), "\r\n") {
		if len(line) > 75 || !utf8.ValidString(line) || strings.ContainsAny(line, "\r\n") {
			t.Errorf("line %q of %d bytes", line, len(line))
		}
	}
	unfolded := strings.ReplaceAll(file, "\r\n ", "")
	for _, want := range []string{
		"DTSTART:20261224T170000Z\r\n", "DTEND:20261225T150300Z\r\n", "UID:K7QM2X9RT4WX@holdfast\r\n",
		"SUMMARY:Ocean 15: Halifax → Montréal\r\n", `A\, B\; C\\D\nE 长`, "DTSTAMP:20261130T120100Z\r\n",
	} {
		if !strings.Contains(unfolded, want) {
			t.Errorf("no %q in\n%s", want, unfolded)
		}
	}
	tk.Kind = catalog.Stay
	if file := string(Calendar(tk)); !strings.Contains(file, "DTSTART;VALUE=DATE:20261224\r\nDTEND;VALUE=DATE:20261225\r\n") {
		t.Errorf("a stay by dates:\n%s", file)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	b := booked(t)
	tk, err := Build(ocean(t), b, testSigner(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	zh := Confirmation(tk, "https://tickets.example.org")
	for _, want := range []string{"K7QM2X9RT4WX", "Ocean 15", "张伟", "座位 12A", "https://tickets.example.org/function/web", "CAD 258.00"} {
		if !strings.Contains(zh.Text, want) {
			t.Errorf("no %q in\n%s", want, zh.Text)
		}
	}
	if !strings.Contains(zh.Short, "3-12A, 3-12B") || !strings.Contains(zh.Short, "K7QM2X9RT4WX") || strings.Contains(zh.Short, "张伟") {
		t.Errorf("SMS: %s", zh.Short)
	}
	amount := &money.Amount{Amount: 25800, Currency: "CAD"}
	for name := range templates {
		for _, lang := range []text.Lang{text.English, text.Chinese} {
			tk.Lang = lang
			m, err := Notify(tk, Notice{Template: name, Data: NoticeData{Amount: amount}})
			if err != nil || m.Subject == "" || !strings.Contains(m.Text, "K7QM2X9RT4WX") || strings.Contains(m.Text+m.Subject, "%!") {
				t.Errorf("%s %s: %+v %v", name, lang, m, err)
			}
			if templates[name].amount && !strings.Contains(m.Short, "CAD 258.00") {
				t.Errorf("%s %s names no amount: %s", name, lang, m.Short)
			}
		}
		if !text.Translated(templates[name].subject) || !text.Translated(templates[name].body) {
			t.Errorf("%s has no Chinese text", name)
		}
	}
	for name, tpl := range orderTemplates {
		for _, reason := range standbyReasons {
			for _, lang := range []text.Lang{text.English, text.Chinese} {
				tk.Lang = lang
				m, err := NotifyOrder(tk, Notice{Order: 1, Template: name, Data: NoticeData{Reason: reason}})
				if err != nil || m.Subject == "" || !strings.Contains(m.Text, tk.Title) || !strings.Contains(m.Short, text.Sprintf(lang, reason)) ||
					strings.Contains(m.Text+m.Subject, "%!") {
					t.Errorf("%s %s: %+v %v", name, lang, m, err)
				}
			}
			if !text.Translated(reason) {
				t.Errorf("%q has no Chinese text", reason)
			}
		}
		if !text.Translated(tpl.subject) || !text.Translated(tpl.body) {
			t.Errorf("%s has no Chinese text", name)
		}
	}
	tk.Lang = text.Chinese
	if m, err := Notify(tk, Notice{Booking: 1, Order: 1, Template: "standby_matched"}); err != nil || !strings.Contains(m.Short, "候补成功") ||
		!strings.Contains(m.Short, "3-12A, 3-12B") {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := Notify(tk, Notice{Template: "refunded"}); err == nil {
		t.Error("a refund without an amount")
	}
	if err := new(Notice).Bind([]byte(`{"order":1,"template":"standby_failed"}`)); err != nil {
		t.Errorf("of an order: %v", err)
	}
	if err := new(Notice).Bind([]byte(`{"booking":1,"template":"standby_failed"}`)); err == nil {
		t.Error("an order's template for a booking")
	}
	if err := new(Notice).Bind([]byte(`{"template":"nonsense"}`)); err == nil {
		t.Error("an unknown template")
	}
}

// standbyReasons are why orders end, as migrations/00040_payment.sql,
// 00060_standby.sql and package payment write them.
var standbyReasons = []string{
	"left by its holder", "the payment was not authorised", "the payment was not authorised in time", "another sum was authorised",
	"no seat came free in time", "the sale has closed", "the sale was cancelled", "the account has reached its limit of seats",
	"the payment was refused", "seats lost before they were paid for", "not paid for in time", "another sum was charged",
	"it was paid before it had seats, and the money goes back",
}
