package layout

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"handler/function/shared/catalog"
)

// Limits of one coach or section.
const (
	maxRows    = 500
	maxColumns = 200
	maxLetters = 26 // rows A to Z, columns A to Z
)

// seats of one coach, row by row: each letter of the pattern is a seat, a hyphen
// an aisle, a dot a space. The outermost seats are at a window, those beside a
// hyphen on the aisle.
func (c Coach) seats() ([]catalog.Seat, error) {
	rows, err := spell(c.Rows)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	columns := []rune(c.Pattern)
	first := strings.IndexFunc(c.Pattern, isSeat)
	last := strings.LastIndexFunc(c.Pattern, isSeat)
	if first < 0 || len(columns) > maxColumns {
		return nil, fmt.Errorf("pattern: must have 1 to %d seats, like AB-CD", maxColumns)
	}
	var list []placed
	for i, row := range rows {
		for j, column := range columns {
			if !isSeat(column) {
				if column != '-' && column != '.' {
					return nil, errors.New("pattern: must be letters, hyphens and dots")
				}
				continue
			}
			var attributes []string
			if j == first || j == last {
				attributes = append(attributes, catalog.Window)
			}
			if j > 0 && columns[j-1] == '-' || j+1 < len(columns) && columns[j+1] == '-' {
				attributes = append(attributes, catalog.Aisle)
			}
			list = append(list, placed{row: row, column: string(column), seat: catalog.Seat{
				Seat: row + string(column), Row: rowNumber(row, i), Column: string(column), Attributes: attributes,
			}})
		}
	}
	return choose(list, c.Skip, c.Attributes)
}

func isSeat(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }

// seats of a section of a hall: row and number, A7; with numbered rows 3-7.
func (s Section) seats() ([]catalog.Seat, error) {
	rows, err := spell(s.Rows)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	if s.Seats < 1 || s.Seats > maxColumns {
		return nil, fmt.Errorf("seats: must be 1 to %d", maxColumns)
	}
	var list []placed
	for i, row := range rows {
		for n := 1; n <= s.Seats; n++ {
			column := strconv.Itoa(n)
			name := row + column
			if isNumber(row) {
				name = row + "-" + column
			}
			var attributes []string
			if n == 1 || n == s.Seats || slices.Contains(s.AislesAfter, n) || slices.Contains(s.AislesAfter, n-1) {
				attributes = []string{catalog.Aisle}
			}
			list = append(list, placed{row: row, column: column, seat: catalog.Seat{
				Seat: name, Row: rowNumber(row, i), Column: column, Attributes: attributes,
			}})
		}
	}
	return choose(list, s.Skip, s.Attributes)
}

type placed struct {
	row, column string
	seat        catalog.Seat
}

// matches: a seat's name, else its row, else its column. In a hall a number is
// a row only where rows are numbered.
func (p placed) matches(selector string) bool {
	return selector == p.seat.Seat || selector == p.row || selector == p.column && !isNumber(selector)
}

func choose(list []placed, skip Names, attributes map[string]Selected) ([]catalog.Seat, error) {
	for _, s := range skip {
		n := len(list)
		list = slices.DeleteFunc(list, func(p placed) bool { return p.matches(s) })
		if len(list) == n {
			return nil, fmt.Errorf("skip: no seat, row or column is %q", s)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(attributes)) {
		if !slices.Contains(catalog.Attributes, a) {
			return nil, fmt.Errorf("attributes: must be of %s: %q", strings.Join(catalog.Attributes, ", "), a)
		}
		for _, s := range attributes[a] {
			found := false
			for i := range list {
				if list[i].matches(s) {
					found = true
					if !slices.Contains(list[i].seat.Attributes, a) {
						list[i].seat.Attributes = append(list[i].seat.Attributes, a)
					}
				}
			}
			if !found {
				return nil, fmt.Errorf("attributes.%s: no seat, row or column is %q", a, s)
			}
		}
	}
	if len(list) == 0 {
		return nil, errors.New("has no seats")
	}
	seats := make([]catalog.Seat, len(list))
	for i, p := range list {
		seats[i] = p.seat
	}
	return seats, nil
}

// spell writes out ranges: 1-12, A-M; commas and lists both separate.
func spell(names Names) ([]string, error) {
	var rows []string
	for _, list := range names {
		for _, part := range strings.Split(list, ",") {
			part = strings.TrimSpace(part)
			from, to, isRange := strings.Cut(part, "-")
			switch {
			case !isRange && part != "" && len(part) <= 4:
				rows = append(rows, part)
			case isRange && isNumber(from) && isNumber(to):
				a, _ := strconv.Atoi(from)
				b, _ := strconv.Atoi(to)
				if b < a || b-a >= maxRows {
					return nil, fmt.Errorf("must be a rising range of at most %d: %q", maxRows, part)
				}
				for n := a; n <= b; n++ {
					rows = append(rows, strconv.Itoa(n))
				}
			case isRange && len(from) == 1 && len(to) == 1 && isSeat(rune(from[0])) && isSeat(rune(to[0])) && from[0] <= to[0] && to[0]-from[0] < maxLetters:
				for r := from[0]; r <= to[0]; r++ {
					rows = append(rows, string(r))
				}
			default:
				return nil, fmt.Errorf("must be rows like 1-12 or A-M: %q", part)
			}
			if len(rows) > maxRows {
				return nil, fmt.Errorf("must be at most %d rows", maxRows)
			}
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("must be rows like 1-12 or A-M")
	}
	return rows, nil
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 4 && strings.Trim(s, "0123456789") == ""
}

// rowNumber is the row's own number, else its place among the rows (A = 1), so
// that neighbouring rows have neighbouring numbers.
func rowNumber(row string, i int) int {
	if n, err := strconv.Atoi(row); err == nil {
		return n
	}
	if len(row) == 1 && isSeat(rune(row[0])) {
		return int(row[0]|0x20-'a') + 1
	}
	return i + 1
}

// Document makes the screening: a sale with one leg, from stop 0 to stop 1.
func (h Hall) Document() (catalog.Document, error) {
	doc := catalog.Document{Kind: catalog.Show, Title: h.Title, Number: h.Number, Timezone: h.Timezone}
	starts, err := moment("starts", h.Starts)
	if err != nil {
		return doc, err
	}
	if starts == nil {
		return doc, errors.New("starts: must be given")
	}
	ends, err := moment("ends", h.Ends)
	if err != nil {
		return doc, err
	}
	zone, err := time.LoadLocation(h.Timezone)
	if err != nil || h.Timezone == "" || h.Timezone == "Local" {
		return doc, fmt.Errorf("timezone: must be an IANA time zone: %q", h.Timezone)
	}
	doc.ServiceDate = starts.In(zone).Format(time.DateOnly)
	doc.Stops = []catalog.Stop{
		{ID: "0", Name: h.Venue, Timezone: h.Timezone, Departs: starts, Board: catalog.CallYes, Alight: catalog.CallNo},
		{ID: "1", Name: h.Venue, Timezone: h.Timezone, Arrives: ends, Board: catalog.CallNo, Alight: catalog.CallYes},
	}
	for _, c := range h.Classes {
		doc.Classes = append(doc.Classes, catalog.Class{ID: c.Class, Title: c.Title, Stock: catalog.Numbered,
			Fare: catalog.Fare{Kind: catalog.PerLeg, Amounts: []int64{c.Price}}})
	}
	for i, s := range h.Sections {
		seats, err := s.seats()
		if err != nil {
			return doc, fmt.Errorf("sections[%d]: %w", i, err)
		}
		doc.Coaches = append(doc.Coaches, catalog.Coach{Coach: s.Section, Class: s.Class, Seats: seats})
	}
	return doc, h.Terms.apply(&doc, *starts)
}

// Begin moves the screening to another time; it lasts as long as before.
func (h *Hall) Begin(at time.Time) error {
	starts, err := moment("starts", h.Starts)
	if err != nil {
		return err
	}
	ends, err := moment("ends", h.Ends)
	if err != nil {
		return err
	}
	if starts != nil && ends != nil {
		h.Ends = at.Add(ends.Sub(*starts)).Format(time.RFC3339)
	}
	h.Starts = at.Format(time.RFC3339)
	return nil
}
