package function

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"handler/function/shared/catalog"
	"handler/function/shared/key"
	"handler/function/shared/money"
	"handler/function/shared/text"
	"handler/function/shared/ticket"
)

// names are of many scripts: field case 65's five first.
var names = []string{
	"张伟", "Zoë Ångström", "विजय कुमार", "محمد عبد الله", "Ana 🎷 Lima",
	"דוד בן־גוריון", "สมชาย ใจดี", "Σωκράτης", "Владимир", "김민준", "山田さくら", "ოთარი", "Նարեկ",
	"জয়ন্ত", "மணி", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "ਗੁਰਪ੍ਰੀਤ", "ગુજરાતી", "ສົມສັກ", "សុខា", "အောင်", "ᐃᓄᒃᑎᑐᑦ", "አበበ", "සුනිල්",
	"👩‍🚀 Valentina", "Nguyễn Thị Ánh",
}

func signer(t testing.TB) *ticket.Signer {
	t.Helper()
	seed := make([]byte, 32)
	rand.Read(seed)
	ring, err := key.Parse("a:" + hex.EncodeToString(seed))
	if err != nil {
		t.Fatal(err)
	}
	s, err := ticket.NewSigner(ring)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// train is a ticket for these passengers.
func train(t testing.TB, lang text.Lang, passengers ...string) *ticket.Ticket {
	t.Helper()
	halifax, err := time.LoadLocation("America/Halifax")
	if err != nil {
		t.Fatal(err)
	}
	toronto, _ := time.LoadLocation("America/Toronto")
	departs := time.Date(2026, 12, 24, 13, 0, 0, 0, halifax)
	arrives := time.Date(2026, 12, 25, 10, 3, 0, 0, toronto)
	tk := &ticket.Ticket{
		Sale: 12, Booking: 345, Locator: "K7QM2X9RT4", Kind: catalog.Train, Title: "Ocean", Number: "15", ServiceDate: "2026-12-24",
		From: ticket.Call{Name: "Halifax", Time: &departs}, To: ticket.Call{Name: "Montréal Central Station", Time: &arrives},
		FirstLeg: 1, LastLeg: 19, Class: "Economy", Lang: lang,
		Price: money.Amount{Amount: 12900 * int64(len(passengers)), Currency: "CAD"}, Issued: time.Date(2026, 11, 30, 12, 0, 0, 0, halifax),
	}
	s := signer(t)
	for i, name := range passengers {
		seat := ticket.Seat{Serial: i + 1, Number: 40 + i, Coach: "3", Seat: fmt.Sprintf("%dA", i+1), Passenger: name, Category: "Adult"}
		seat.Name = seat.Coach + "-" + seat.Seat
		seat.QR, err = s.Sign(ticket.Pass{Sale: tk.Sale, Booking: tk.Booking, Serial: seat.Serial, Seat: seat.Number, SeatName: seat.Name,
			FirstLeg: 1, LastLeg: 19, ServiceDate: tk.ServiceDate})
		if err != nil {
			t.Fatal(err)
		}
		tk.Seats = append(tk.Seats, seat)
	}
	return tk
}

// paper prints a ticket and gives its text back, page by page, as pdftotext reads
// it; nil where pdftotext is not installed. HOLDFAST_KEEP_PAPER names a folder to
// keep the files in, to look at.
func paper(t *testing.T, name string, tk *ticket.Ticket) (size int, pages []string) {
	t.Helper()
	fonts, err := ticket.Fonts(os.DirFS("static/fonts"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ticket.Paper(fonts, tk)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ticket.Paper(fonts, tk)
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("the same ticket gives another file: %v", err)
	}
	dir := os.Getenv("HOLDFAST_KEEP_PAPER")
	if dir == "" {
		dir = t.TempDir()
	}
	file := filepath.Join(dir, name+".pdf")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("pdftotext"); err != nil {
		return len(b), nil
	}
	out, err := exec.Command("pdftotext", "-layout", file, "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	return len(b), strings.Split(strings.TrimSuffix(string(out), "\f"), "\f")
}

// Names outside Latin are on the paper, in their own shapes, and come back as
// they were written (field case 65).
func TestNamesOnPaper(t *testing.T) {
	tk := train(t, text.English, names...)
	size, pages := paper(t, "names", tk)
	if size > 400<<10 {
		t.Errorf("%d scripts take %d bytes", len(names), size)
	}
	if pages == nil {
		return
	}
	if len(pages) != len(names) {
		t.Fatalf("%d pages", len(pages))
	}
	for i, name := range names {
		if !strings.Contains(pages[i], name) {
			t.Errorf("page %d does not say %q:\n%s", i+1, name, pages[i])
		}
		if strings.Contains(pages[i], "\uFFFD") {
			t.Errorf("page %d has something no font has:\n%s", i+1, pages[i])
		}
	}
}

// What no font has is shown as missing, never left out.
func TestUnknownScriptIsSeen(t *testing.T) {
	_, pages := paper(t, "unknown", train(t, text.English, "\U00012000 Gudea"))
	if pages != nil && !strings.Contains(pages[0], "\uFFFD Gudea") {
		t.Errorf("%s", pages[0])
	}
}

func TestPaperSays(t *testing.T) {
	for lang, wants := range map[text.Lang][]string{
		text.English: {"Train ticket", "Ocean 15", "K7QM2X9RT4", "Thu 24 Dec 2026", "13:00", "AST, UTC-4", "10:03", "EST, UTC-5", "Halifax",
			"Montréal Central Station", "Coach", "Economy", "Zoë", "1 of 2", "CAD 258.00", "Show this code"},
		text.Chinese: {"火车票", "2026年12月24日", "车厢", "座位", "乘客", "票价", "请在检票口出示"},
	} {
		size, pages := paper(t, string(lang), train(t, lang, "Zoë", "张伟"))
		if size > 200<<10 {
			t.Errorf("%s: %d bytes for two pages", lang, size)
		}
		for _, want := range wants {
			if pages != nil && !strings.Contains(pages[0], want) {
				t.Errorf("%s: no %q on\n%s", lang, want, pages[0])
			}
		}
	}
}

// Long texts are made smaller or cut with an ellipsis, and stay on the page.
func TestLongTextsOnPaper(t *testing.T) {
	tk := train(t, text.English, strings.Repeat("Wolfeschlegelsteinhausen ", 8))
	tk.Title, tk.From.Name = strings.Repeat("The Very Long Express ", 6), strings.Repeat("Llanfairpwllgwyngyll", 6)
	_, pages := paper(t, "long", tk)
	if pages != nil && (len(pages) != 1 || !strings.Contains(pages[0], "…")) {
		t.Errorf("%d pages:\n%s", len(pages), pages[0])
	}
}

// A screening and a stay have their own words, and a counted class no seat.
func TestOtherKindsOnPaper(t *testing.T) {
	show := train(t, text.English, "Ana Lima")
	show.Kind, show.Number, show.Title, show.From.Name, show.To.Name = catalog.Show, "", "Nosferatu", "Rialto", "Rialto"
	_, pages := paper(t, "show", show)
	if pages != nil && (!strings.Contains(pages[0], "Admission ticket") || !strings.Contains(pages[0], "Starts")) {
		t.Errorf("%s", pages[0])
	}
	stay := train(t, text.English, "Ana Lima", "")
	stay.Kind, stay.Number, stay.Title, stay.Class = catalog.Stay, "", "Hotel Terminus", "Double room"
	for i := range stay.Seats {
		stay.Seats[i].Number, stay.Seats[i].Coach, stay.Seats[i].Seat = 0, "", ""
	}
	_, pages = paper(t, "stay", stay)
	if pages != nil && (!strings.Contains(pages[0], "Stay voucher") || !strings.Contains(pages[0], "Check-in") || !strings.Contains(pages[1], "2 of 2")) {
		t.Errorf("%s", pages[0])
	}
}

func TestParallelPapers(t *testing.T) {
	fonts, err := ticket.Fonts(os.DirFS("static/fonts"))
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 8 {
		tk := train(t, text.English, names[i], names[i+8])
		wait.Go(func() {
			if _, err := ticket.Paper(fonts, tk); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func BenchmarkPaper(b *testing.B) {
	fonts, err := ticket.Fonts(os.DirFS("static/fonts"))
	if err != nil {
		b.Fatal(err)
	}
	for name, who := range map[string][]string{"latin": {"Zoë", "Ana"}, "chinese": {"张伟", "李娜"}, "mixed": names[:5]} {
		tk := train(b, text.English, who...)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ticket.Paper(fonts, tk); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
