package ticket

import (
	"fmt"
	"strconv"
	"time"

	"github.com/boombuler/barcode/qr"

	"handler/function/shared/catalog"
	"handler/function/shared/pdf"
	"handler/function/shared/text"
)

// The page is A5 upright: half a sheet of A4, and readable on a phone as it is.
const (
	pageWidth  = 148.0 // mm
	pageHeight = 210.0
	margin     = 12.0
	codeSide   = 58.0
)

var (
	ink    = pdf.Color{R: 0x17, G: 0x24, B: 0x2e}
	soft   = pdf.Color{R: 0x5d, G: 0x6b, B: 0x76}
	band   = pdf.Color{R: 0x0c, G: 0x4a, B: 0x5e}
	onBand = pdf.Color{R: 0xff, G: 0xff, B: 0xff}
	dimmed = pdf.Color{R: 0xbf, G: 0xd8, B: 0xdf}
	panel  = pdf.Color{R: 0xee, G: 0xf3, B: 0xf4}
	rule   = pdf.Color{R: 0xb9, G: 0xc4, B: 0xc9}
)

// Paper draws the ticket, a page for each seat.
func Paper(fonts *pdf.Fonts, t *Ticket) ([]byte, error) {
	doc := pdf.New(fonts, pdf.Info{
		Title:    t.Heading() + " " + t.Locator,
		Author:   "Holdfast",
		Language: string(t.Lang),
		Created:  t.Issued,
	})
	defer doc.Close()
	for i := range t.Seats {
		if err := drawSeat(doc.Page(pageWidth, pageHeight), t, &t.Seats[i]); err != nil {
			return nil, err
		}
	}
	return doc.Bytes()
}

func drawSeat(p *pdf.Page, t *Ticket, s *Seat) error {
	drawHead(p, t)
	drawJourney(p, t)
	drawPlace(p, t, s)
	if err := drawCode(p, t, s); err != nil {
		return err
	}
	drawFoot(p, t, s)
	return nil
}

func label(p *pdf.Page, x, y, width float64, s string, align pdf.Align) {
	p.Fit(x, y, width, 5, s, pdf.Style{Size: 7.5, Color: soft, Align: align})
}

func drawHead(p *pdf.Page, t *Ticket) {
	p.Rect(0, 0, pageWidth, 34, band)
	width := pageWidth - 2*margin
	p.Text(margin, 11, text.Sprintf(t.Lang, kindLabels[t.Kind]), pdf.Style{Size: 9, Color: dimmed})
	p.Text(pageWidth-margin, 11, t.Locator, pdf.Style{Size: 11, Bold: true, Color: onBand, Align: pdf.Right})
	p.Fit(margin, 21, width, 11, t.Heading(), pdf.Style{Size: 20, Bold: true, Color: onBand})
	if day, ok := t.day(); ok {
		line := date(t.Lang, day)
		if service := day.Format(time.DateOnly); t.Kind == catalog.Train && t.ServiceDate != "" && service != t.ServiceDate {
			if d, err := time.Parse(time.DateOnly, t.ServiceDate); err == nil {
				line += "  ·  " + text.Sprintf(t.Lang, "timetable of %s", date(t.Lang, d))
			}
		}
		p.Fit(margin, 29, width, 7, line, pdf.Style{Size: 11, Color: onBand})
	}
}

var kindLabels = map[catalog.Kind]string{
	catalog.Train: "Train ticket", catalog.Show: "Admission ticket", catalog.Stay: "Stay voucher",
}

func drawJourney(p *pdf.Page, t *Ticket) {
	const top, column = 46.0, 52.0
	right := pageWidth - margin
	from, to := "From", "To"
	switch t.Kind {
	case catalog.Show:
		from, to = "Starts", "Ends"
	case catalog.Stay:
		from, to = "Check-in", "Check-out"
	}
	drawCall(p, t, margin, top, column, text.Sprintf(t.Lang, from), t.From, pdf.Left)
	drawCall(p, t, right, top, column, text.Sprintf(t.Lang, to), t.To, pdf.Right)

	// The way between, with how long it takes.
	left, end, y := margin+column-12, right-column+12, top+9
	p.Line(left, y, end-1.4, y, 0.5, 0, rule)
	p.Circle(left, y, 1.1, band)
	p.Circle(end, y, 1.1, band)
	if t.From.Time != nil && t.To.Time != nil && t.Kind != catalog.Stay {
		if d := t.To.Time.Sub(*t.From.Time); d > 0 {
			p.Text((left+end)/2, y-2, duration(t.Lang, d), pdf.Style{Size: 8, Color: soft, Align: pdf.Center})
		}
	}
}

func duration(l text.Lang, d time.Duration) string {
	d = d.Round(time.Minute)
	hours, minutes := strconv.Itoa(int(d/time.Hour)), int(d/time.Minute%60)
	if d < time.Hour {
		return text.Sprintf(l, "%d min", minutes)
	}
	return text.Sprintf(l, "%s h %02d min", hours, minutes)
}

func drawCall(p *pdf.Page, t *Ticket, x, top, width float64, what string, c Call, align pdf.Align) {
	label(p, x, top, width, what, align)
	clock := "–"
	if c.Time != nil {
		clock = c.Time.Format("15:04")
	}
	p.Text(x, top+11, clock, pdf.Style{Size: 25, Bold: true, Color: ink, Align: align})
	y := top + 18.5
	name := pdf.Style{Size: 12.5, Bold: true, Color: ink, Align: align}
	y += p.Lines(x, y, width+8, 5.6, 2, c.Name, name)
	if p.Width(c.Name, name) <= width+8 {
		y = top + 18.5 + 5.6
	}
	if c.Time != nil {
		p.Fit(x, y, width, 6, date(t.Lang, *c.Time), pdf.Style{Size: 9, Color: ink, Align: align})
		p.Fit(x, y+4.4, width, 6, zone(*c.Time), pdf.Style{Size: 8, Color: soft, Align: align})
		y += 8.8
	}
	if c.Request {
		p.Fit(x, y, width, 6, text.Sprintf(t.Lang, "Stops on request: tell the crew"), pdf.Style{Size: 8, Bold: true, Color: band, Align: align})
	}
}

func drawPlace(p *pdf.Page, t *Ticket, s *Seat) {
	const top, height = 87.0, 36.0
	p.Rect(margin, top, pageWidth-2*margin, height, panel)
	type cell struct{ what, value string }
	var cells []cell
	class := cell{text.Sprintf(t.Lang, "Class"), t.Class}
	switch {
	case t.Kind == catalog.Stay:
		cells = []cell{{text.Sprintf(t.Lang, "Room type"), t.Class}, {text.Sprintf(t.Lang, "Room"), place(t, s)}}
	case s.Number == 0:
		cells = []cell{class, {text.Sprintf(t.Lang, "Place"), place(t, s)}}
	case s.Coach == "":
		cells = []cell{class, {text.Sprintf(t.Lang, "Seat"), s.Seat}}
	case t.Kind == catalog.Show:
		cells = []cell{{text.Sprintf(t.Lang, "Section"), s.Coach}, {text.Sprintf(t.Lang, "Seat"), s.Seat}, class}
	default:
		cells = []cell{{text.Sprintf(t.Lang, "Coach"), s.Coach}, {text.Sprintf(t.Lang, "Seat"), s.Seat}, class}
	}
	width := (pageWidth - 2*margin) / float64(len(cells))
	for i, c := range cells {
		x := margin + float64(i)*width + 5
		label(p, x, top+6.5, width-8, c.what, pdf.Left)
		p.Fit(x, top+15.5, width-8, 8, c.value, pdf.Style{Size: 19, Bold: true, Color: ink})
	}
	p.Line(margin+5, top+19.8, pageWidth-margin-5, top+19.8, 0.25, 0, rule)
	label(p, margin+5, top+24.8, 40, text.Sprintf(t.Lang, "Passenger"), pdf.Left)
	name := s.Passenger
	if name == "" {
		name = "–"
	}
	room := pageWidth - 2*margin - 10
	if s.Category != "" {
		category := pdf.Style{Size: 9, Color: soft, Align: pdf.Right}
		p.Text(pageWidth-margin-5, top+31.5, s.Category, category)
		room -= p.Width(s.Category, category) + 4
	}
	p.Fit(margin+5, top+31.5, room, 7, name, pdf.Style{Size: 15, Bold: true, Color: ink})
}

// place names a unit that has no number: one of so many.
func place(t *Ticket, s *Seat) string {
	return text.Sprintf(t.Lang, "%d of %d", s.Serial, len(t.Seats))
}

func drawCode(p *pdf.Page, t *Ticket, s *Seat) error {
	const tear, top = 129.0, 136.0
	p.Line(margin, tear, pageWidth-margin, tear, 0.35, 1.2, rule)
	p.Circle(0, tear, 4, panel)
	p.Circle(pageWidth, tear, 4, panel)

	code, err := qr.Encode(s.QR, qr.M, qr.AlphaNumeric)
	if err != nil {
		return fmt.Errorf("ticket: code: %w", err)
	}
	size := code.Bounds().Dx()
	p.Modules(margin, top, codeSide, size, func(x, y int) bool {
		r, _, _, _ := code.At(x, y).RGBA()
		return r < 0x8000
	}, pdf.Color{})

	x, width := margin+codeSide+9, pageWidth-2*margin-codeSide-9
	y := top + 3.0
	row := func(what, value string, size float64, bold bool) {
		label(p, x, y, width, what, pdf.Left)
		p.Fit(x, y+size*0.36+2.6, width, 7, value, pdf.Style{Size: size, Bold: bold, Color: ink})
		y += size*0.36 + 9
	}
	row(text.Sprintf(t.Lang, "Booking code"), t.Locator, 17, true)
	row(text.Sprintf(t.Lang, "Ticket"), text.Sprintf(t.Lang, "%d of %d", s.Serial, len(t.Seats)), 11, false)
	price := t.Price.String()
	if len(t.Seats) > 1 {
		price += " " + text.Sprintf(t.Lang, "(for all %d)", len(t.Seats))
	}
	row(text.Sprintf(t.Lang, "Price"), price, 11, false)
	row(text.Sprintf(t.Lang, "Booked on"), date(t.Lang, t.Issued), 11, false)
	return nil
}

func drawFoot(p *pdf.Page, t *Ticket, _ *Seat) {
	terms := "Show this code at the gate, printed or on a screen. It lets one person in, once, for what is named above. Bring proof of the name on it. What can be changed or refunded stands with your booking."
	p.Lines(margin, 200.5, pageWidth-2*margin, 3.6, 2, text.Sprintf(t.Lang, terms), pdf.Style{Size: 7.5, Color: soft})
}
