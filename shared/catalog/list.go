package catalog

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
	"github.com/maypok86/otter/v2"
)

// Limits of the list. A day or the whole time ahead is read once in listTime,
// whatever is asked; filters are applied here, so that a crowd that looks for a
// train costs Postgres one query a second.
const (
	PageSize  = 30
	maxListed = 20_000 // sales of one day, or ahead
	listTime  = time.Second
	listChunk = 500  // still parts read at once
	maxAhead  = 3650 // days from today a listed date may lie
)

// Filter says which sales are wanted; empty fields do not restrict.
type Filter struct {
	Kind Kind
	Date string // service day, YYYY-MM-DD; empty: all that has not left
	From string // stop id or name
	To   string // stop id or name; after From
	Text string // words in title, number or stop names
	// Mine lists the sales of the organisation Org alone, its drafts too.
	Mine bool
	Org  string
	// After is the cursor of the page before.
	After string
}

// listKey names one read of Postgres.
type listKey struct {
	date, org string // org only with mine
	mine      bool
}

// ParseFilter checks the query of the list; errors are bad-request and name the
// parameter.
func ParseFilter(get func(string) string) (Filter, error) {
	f := Filter{Kind: Kind(get("kind")), Date: get("date"), From: get("from"), To: get("to"), Text: get("q"), After: get("cursor")}
	if f.Kind != "" && !slices.Contains(Kinds, f.Kind) {
		return f, problem.Malformed("kind", "must be train, show or stay")
	}
	if f.Date != "" {
		day, err := time.Parse(time.DateOnly, f.Date)
		if err != nil {
			return f, problem.Malformed("date", "must be a date like 2026-12-24")
		}
		if away := time.Until(day).Hours() / 24; away > maxAhead || away < -maxAhead {
			return f, problem.Malformed("date", "must be within ten years of today")
		}
	}
	for name, s := range map[string]string{"from": f.From, "to": f.To, "q": f.Text} {
		if len(s) > maxText*4 {
			return f, problem.Malformed(name, "must be at most %d characters", maxText)
		}
	}
	if mine := get("mine"); mine != "" {
		if mine != "true" {
			return f, problem.Malformed("mine", "must be true where it is given")
		}
		f.Mine = true
	}
	if f.After != "" {
		if _, _, ok := readCursor(f.After); !ok {
			return f, problem.Malformed("cursor", "must be `next` of an earlier answer")
		}
	}
	return f, nil
}

// Found is a listed sale, without its places. F and T are the legs from and to
// ask for, else the whole route.
type Found struct {
	*Sale
	F, T int
}

// List finds sales in order of departure, at most PageSize; next is the cursor
// of the next page, empty at the end. Drafts are listed with Mine alone.
func (r *Reader) List(ctx context.Context, f Filter) (page []Found, next string, err error) {
	key := listKey{date: f.Date, mine: f.Mine}
	if f.Mine {
		key.org = f.Org
	}
	all, err := r.lists.Get(ctx, key, otter.LoaderFunc[listKey, []*Sale](r.loadList))
	if err != nil {
		return nil, "", err
	}
	at, id, paged := readCursor(f.After)
	words := strings.Fields(strings.ToLower(f.Text))
	for _, s := range all {
		if paged && !after(s, at, id) {
			continue
		}
		found, ok := f.match(s, words)
		if !ok {
			continue
		}
		if len(page) == PageSize {
			return page, cursor(page[PageSize-1].Sale), nil
		}
		page = append(page, found)
	}
	return page, "", nil
}

func (f Filter) match(s *Sale, words []string) (Found, bool) {
	found := Found{Sale: s, F: 1, T: s.Legs}
	if f.Kind != "" && s.Kind != f.Kind || f.Mine && s.Org != f.Org {
		return found, false
	}
	if f.From != "" {
		i := slices.IndexFunc(s.Stops, func(stop Stop) bool { return stop.named(f.From) && stop.Board != CallNo })
		if i < 0 || i == s.Legs {
			return found, false
		}
		found.F = i + 1
	}
	if f.To != "" {
		j := -1
		for i := len(s.Stops) - 1; i >= found.F; i-- {
			if s.Stops[i].named(f.To) && s.Stops[i].Alight != CallNo {
				j = i
			}
		}
		if j < 0 {
			return found, false
		}
		found.T = j
	}
	for _, w := range words {
		if !strings.Contains(s.searchText, w) {
			return found, false
		}
	}
	return found, true
}

// named: the id, the id before #2, or the name whatever its case.
func (s Stop) named(name string) bool {
	base, _, _ := strings.Cut(s.ID, "#")
	return s.ID == name || base == name || strings.EqualFold(s.Name, name)
}

func (r *Reader) loadList(ctx context.Context, key listKey) (list []*Sale, err error) {
	ctx = context.WithoutCancel(ctx)
	org := any(nil)
	if key.mine {
		org = key.org
	}
	err = r.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		list = nil
		var rows pgx.Rows
		var err error
		if key.date != "" {
			rows, err = q.Query(ctx, sql["list-date"], key.date, org, maxListed)
		} else {
			rows, err = q.Query(ctx, sql["list-upcoming"], org, maxListed)
		}
		if err != nil {
			return err
		}
		return each(rows, func() error {
			s, err := scanHead(rows)
			if err == nil {
				list = append(list, s)
			}
			return err
		})
	})
	if err != nil {
		if last, ok := r.lastLists.GetIfPresent(key); ok && problem.Is(err, problem.Unavailable) {
			return last, nil
		}
		return nil, err
	}
	var missing []*Sale
	for _, s := range list {
		if still, ok := r.listed.GetIfPresent(s.ID); ok && still.Version == s.Version {
			s.still(still)
			s.searchText = still.searchText
			continue
		}
		missing = append(missing, s)
	}
	for chunk := range slices.Chunk(missing, listChunk) {
		if err := r.loadListed(ctx, chunk); err != nil {
			return nil, err
		}
	}
	// A sale that vanished between the reads has no stops.
	list = slices.DeleteFunc(list, func(s *Sale) bool { return len(s.Stops) < 2 })
	r.lastLists.Set(key, list)
	return list, nil
}

// loadListed reads stops and classes of listed sales.
func (r *Reader) loadListed(ctx context.Context, list []*Sale) error {
	ids := make([]int64, len(list))
	byID := make(map[int64]*Sale, len(list))
	for i, s := range list {
		ids[i] = s.ID
		byID[s.ID] = s
	}
	err := r.db.Do(ctx, func(ctx context.Context, q store.Querier) error {
		rows, err := q.Query(ctx, sql["list-stops"], ids)
		if err != nil {
			return err
		}
		if err := each(rows, func() error {
			var into Sale
			if err := into.scanStops(rows, &into.ID, &into.Version); err != nil {
				return err
			}
			byID[into.ID].Stops, byID[into.ID].Version, byID[into.ID].Classes = into.Stops, into.Version, nil
			return nil
		}); err != nil {
			return err
		}
		if rows, err = q.Query(ctx, sql["list-classes"], ids); err != nil {
			return err
		}
		return each(rows, func() error {
			var id int64
			var c Class
			if err := scanClass(rows, &c, &id); err != nil {
				return err
			}
			byID[id].Classes = append(byID[id].Classes, c)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, s := range list {
		if len(s.Stops) < 2 {
			continue
		}
		s.index()
		s.searchText = s.words()
		r.listed.Set(s.ID, s)
	}
	return nil
}

// words are what Text looks in.
func (s *Sale) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.Title, s.Number)
	for _, stop := range s.Stops {
		b.WriteByte(' ')
		b.WriteString(stop.Name)
	}
	return strings.ToLower(b.String())
}

// A cursor is the departure (microseconds) and id of the last sale of a page.
func cursor(s *Sale) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d", s.DepartsAt.UnixMicro(), s.ID))
}

func readCursor(c string) (at, id int64, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(c)
	if err != nil || len(b) > 40 {
		return 0, 0, false
	}
	left, right, _ := strings.Cut(string(b), ".")
	at, err = strconv.ParseInt(left, 10, 64)
	id, err2 := strconv.ParseInt(right, 10, 64)
	return at, id, err == nil && err2 == nil
}

func after(s *Sale, at, id int64) bool {
	own := s.DepartsAt.UnixMicro()
	return own > at || own == at && s.ID > id
}
