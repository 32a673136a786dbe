// Package audit checks the invariants of DESIGN section 12 against Postgres
// (and, for places, against the stream of joins): what must be true whatever
// happened before. Each statement is short and sees one sale, so that an audit
// of a running sale keeps no old snapshot open.
package audit

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"handler/function/shared/store"

	"github.com/jackc/pgx/v5"
)

//go:embed audit.sql
var file string

var sql = store.Queries(file)

// maxBroken is how many breaches of one invariant of one sale are listed.
const maxBroken = 20

// Broken is one breach of an invariant.
type Broken struct {
	Invariant int    `json:"invariant"` // its number in DESIGN section 12
	Check     string `json:"check"`     // the name of the statement
	Sale      int64  `json:"sale,omitempty"`
	Room      int64  `json:"room,omitempty"`
	Detail    string `json:"detail"`
}

// Alert is an open row of the table alert.
type Alert struct {
	Sale    int64     `json:"sale"`
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Detail  string    `json:"detail"`
}

// Report is what an audit found. Sold, Held and Refunded count seats.
type Report struct {
	Sales    int      `json:"sales"`
	Sold     int64    `json:"sold"`
	Held     int64    `json:"held"`
	Refunded int64    `json:"refunded"`
	Oversold int64    `json:"oversold"` // breaches of invariant 1 by overlap
	Broken   []Broken `json:"broken"`
	Alerts   []Alert  `json:"alerts"`
}

// OK says whether every invariant holds. Open alerts break none.
func (r Report) OK() bool { return len(r.Broken) == 0 }

// checks are the statements that list breaches, one row each, of a sale.
var checks = []struct {
	invariant int
	name      string
}{
	{1, "overlap"}, {1, "incomplete"}, {1, "orphan"}, {1, "booked_seat"}, {1, "account_sale"},
	{3, "money"},
	{4, "queues"}, {4, "orders"},
	{5, "outbox"}, {5, "release_due"}, {5, "order_due"},
	{6, "limits"},
	{7, "unconsidered"},
}

// Join is one message of the stream of joins, as Places needs it.
type Join struct {
	Room, Generation int64
	Account          string
	Late             int64 // the late number, 0 for a join of the draw
}

// Run audits one sale, or with sale 0 all of them, and every room. joins is
// every join of the stream in order; nil where there is no NATS to read.
func Run(ctx context.Context, q store.Querier, sale int64, joins []Join) (Report, error) {
	r := Report{Broken: []Broken{}, Alerts: []Alert{}}
	sales, err := Sales(ctx, q, sale)
	if err != nil {
		return r, err
	}
	r.Sales = len(sales)
	for _, s := range sales {
		var sold, held, refunded int64
		if err := q.QueryRow(ctx, sql["totals"], s).Scan(&sold, &held, &refunded); err != nil {
			return r, fmt.Errorf("audit: totals of sale %d: %w", s, err)
		}
		r.Sold, r.Held, r.Refunded = r.Sold+sold, r.Held+held, r.Refunded+refunded
		for _, c := range checks {
			found, err := breaches(ctx, q, sql[c.name], s)
			if err != nil {
				return r, fmt.Errorf("audit: %s of sale %d: %w", c.name, s, err)
			}
			if c.name == "overlap" {
				r.Oversold += int64(len(found))
			}
			for _, detail := range found[:min(len(found), maxBroken)] {
				r.Broken = append(r.Broken, Broken{Invariant: c.invariant, Check: c.name, Sale: s, Detail: detail})
			}
		}
	}
	rooms, err := numbers(ctx, q, sql["rooms"])
	if err != nil {
		return r, err
	}
	for _, room := range rooms {
		found, err := roomBreaches(ctx, q, room)
		if err != nil {
			return r, fmt.Errorf("audit: room %d: %w", room, err)
		}
		r.Broken = append(r.Broken, found...)
	}
	r.Broken = append(r.Broken, joinBreaches(joins)...)
	rows, err := q.Query(ctx, sql["alerts"], sale)
	if err != nil {
		return r, fmt.Errorf("audit: alerts: %w", err)
	}
	r.Alerts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Alert])
	if r.Alerts == nil {
		r.Alerts = []Alert{}
	}
	return r, err
}

// Queued is an order in a queue of standby as Redis has it. Legs are 1-based and
// inclusive.
type Queued struct {
	Class         string
	From, To      int
	Number, Score int64
}

// Queues checks that the queues of a sale in Redis, read before this call, hold
// exactly the waiting orders (invariant 4). A difference is none while the order's
// change is on its way: younger than 60 s, with its outbox row.
func Queues(ctx context.Context, q store.Querier, sale int64, inRedis []Queued) ([]Broken, error) {
	rows, err := q.Query(ctx, sql["standing"], sale)
	if err != nil {
		return nil, fmt.Errorf("audit: queues of sale %d: %w", sale, err)
	}
	standing := map[Queued]bool{}
	var o Queued
	if _, err := pgx.ForEachRow(rows, []any{&o.Number, &o.Class, &o.From, &o.To, &o.Score}, func() error {
		standing[o] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("audit: queues of sale %d: %w", sale, err)
	}
	differ := map[Queued]string{}
	for _, o := range inRedis {
		if !standing[o] {
			differ[o] = "stands in Redis without waiting"
		}
		delete(standing, o)
	}
	for o := range standing {
		differ[o] = "waits and does not stand in Redis"
	}
	if len(differ) == 0 {
		return nil, nil
	}
	subjects := make([]string, 0, len(differ))
	for o := range differ {
		subjects = append(subjects, strconv.FormatInt(o.Number, 10))
	}
	if rows, err = q.Query(ctx, sql["moving"], sale, subjects); err != nil {
		return nil, fmt.Errorf("audit: queues of sale %d: %w", sale, err)
	}
	moving, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("audit: queues of sale %d: %w", sale, err)
	}
	var broken []Broken
	for o, what := range differ {
		if slices.Contains(moving, o.Number) {
			continue
		}
		if broken = append(broken, Broken{Invariant: 4, Check: "redis", Sale: sale,
			Detail: fmt.Sprintf("order %d %s: the queue of %s, legs %d to %d, score %d", o.Number, what, o.Class, o.From, o.To, o.Score)}); len(broken) == maxBroken {
			break
		}
	}
	return broken, nil
}

// Sales lists the sales that an audit of one sale, or with 0 of all, looks at.
func Sales(ctx context.Context, q store.Querier, sale int64) ([]int64, error) {
	return numbers(ctx, q, sql["sales"], sale)
}

// roomBreaches checks a room's admissions and its stored lists: a list is in
// ascending order without a score twice, and its hash is its own.
func roomBreaches(ctx context.Context, q store.Querier, room int64) ([]Broken, error) {
	var all []Broken
	found, err := breaches(ctx, q, sql["places"], room)
	if err != nil {
		return nil, err
	}
	for _, detail := range found[:min(len(found), maxBroken)] {
		all = append(all, Broken{Invariant: 6, Check: "places", Room: room, Detail: detail})
	}
	rows, err := q.Query(ctx, sql["draws"], room)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var generation, people int64
		var list, hash []byte
		if err := rows.Scan(&generation, &people, &list, &hash); err != nil {
			return nil, err
		}
		if detail := listBreach(people, list, hash); detail != "" {
			all = append(all, Broken{Invariant: 6, Check: "list", Room: room, Detail: fmt.Sprintf("generation %d: %s", generation, detail)})
		}
	}
	return all, rows.Err()
}

// A stored list entry is 64 bits, of which the first 52 are the public score.
const scoreShift = 12

func listBreach(people int64, list, hash []byte) string {
	if int64(len(list)) != 8*people {
		return fmt.Sprintf("the list has %d bytes for %d people", len(list), people)
	}
	public := make([]byte, 0, len(list))
	last := uint64(0)
	for i := 0; i < len(list); i += 8 {
		score := binary.BigEndian.Uint64(list[i:]) >> scoreShift
		if i > 0 && score <= last {
			return fmt.Sprintf("the score at index %d is not above the one before", i/8)
		}
		last = score
		public = binary.BigEndian.AppendUint64(public, score)
	}
	if sum := sha256.Sum256(public); string(sum[:]) != string(hash) {
		return "the stored hash is not the list's"
	}
	return ""
}

// joinBreaches checks that no late number was given to two accounts.
func joinBreaches(joins []Join) []Broken {
	type place struct{ room, generation, late int64 }
	given := map[place]string{}
	var all []Broken
	for _, j := range joins {
		if j.Late == 0 {
			continue
		}
		p := place{j.Room, j.Generation, j.Late}
		if first, ok := given[p]; ok && first != j.Account {
			all = append(all, Broken{Invariant: 6, Check: "late", Room: j.Room,
				Detail: fmt.Sprintf("generation %d: the late number %d was given to two accounts", j.Generation, j.Late)})
		}
		given[p] = j.Account
	}
	return all[:min(len(all), maxBroken)]
}

func numbers(ctx context.Context, q store.Querier, statement string, args ...any) ([]int64, error) {
	rows, err := q.Query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// breaches reads (subject, detail) rows and gives the details.
func breaches(ctx context.Context, q store.Querier, statement string, of int64) ([]string, error) {
	rows, err := q.Query(ctx, statement, of)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var subject int64
		var detail string
		if err := rows.Scan(&subject, &detail); err != nil {
			return nil, err
		}
		all = append(all, detail)
	}
	return all, rows.Err()
}
