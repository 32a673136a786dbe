package room

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"handler/function/shared/problem"
)

const (
	// joinBatch bounds one run of the join script: about a millisecond in which
	// Redis serves nobody else.
	joinBatch = 256

	// Limits of joins without a Place-Token (DESIGN 9): for an account, and a wide
	// one for an address, behind which may be a whole town.
	accountRate, accountBurst = 2.0, 40
	addressRate, addressBurst = 2_000.0, 40_000
)

// Notices are texts of the catalogue that an answer may carry for the person.
const (
	NoticeQueued      = "Queued. System busy, position available later"
	NoticeLater       = "System busy, please ask again later"
	NoticeMaintenance = "Under maintenance, you keep your place"
	NoticeSoon        = "A few seconds more, you are next"
)

// Ask is one POST of join-room.
type Ask struct {
	Room       int64
	Account    string
	PlaceToken string // empty: take a place, or be told one's own again
	Rejoin     bool
	Client     netip.Addr // zero: not known
}

// Answer is what a person is told.
type Answer struct {
	PlaceToken     string          `json:"place_token"`
	Place          *int64          `json:"place"`
	State          State           `json:"state"`
	Status         json.RawMessage `json:"-"` // the same bytes for everyone: see JSON
	PollAfterMS    int64           `json:"poll_after_ms"`
	AdmitToken     string          `json:"admit_token,omitempty"`
	AdmitFor       string          `json:"admit_for,omitempty"`
	AdmitExpiresAt *time.Time      `json:"admit_expires_at,omitempty"`
	Notice         string          `json:"notice,omitempty"`

	Joined bool `json:"-"` // a place was taken now: 201
}

// JSON is the answer as api/openapi.yaml has it. The status is put in as it is: it was
// encoded once for everyone.
func (a Answer) JSON() []byte {
	b, err := json.Marshal(a)
	if err != nil {
		panic("room: an answer that is no JSON: " + err.Error())
	}
	b = append(b[:len(b)-1], `,"status":`...)
	b = append(b, a.Status...)
	return append(b, '}')
}

// Join takes a place or tells where one stands; it admits who is served.
// Errors: not-found, not-open-yet, sale-closed, wrong-state (no room in front, or
// nothing to join again for), bad-token, room-reset, too-many-requests, and
// unavailable when neither Redis nor the stream takes a join.
func (s *Service) Join(ctx context.Context, ask Ask) (Answer, error) {
	snap, err := s.look(ctx, ask.Room)
	if err != nil {
		return Answer{}, err
	}
	if snap.doc.Mode == Off {
		return Answer{}, problem.New(problem.WrongState, "This sale has no waiting room: hold directly.")
	}
	if ask.PlaceToken == "" || ask.Rejoin {
		if err := s.limit(ctx, ask); err != nil {
			return Answer{}, err
		}
	}
	at := standing{account: ask.Account, token: ask.PlaceToken}
	if ask.PlaceToken == "" {
		snap, err = s.enter(ctx, snap, &at)
	} else {
		err = s.present(ctx, snap, ask, &at)
	}
	if err != nil {
		return Answer{}, err
	}
	if ask.Rejoin && !at.joined {
		if err := s.rejoin(ctx, snap, &at); err != nil {
			return Answer{}, err
		}
	}
	return s.answer(ctx, snap, &at)
}

// standing is where one person stands while a request is answered.
type standing struct {
	account string
	token   string
	late    int64 // late number, 0: drawn or not known
	place   int64 // 0: not known yet
	joined  bool
	notice  string
}

func (s *Service) limit(ctx context.Context, ask Ask) error {
	ok, after := s.buckets.Take(ctx, "join:"+ask.Account, accountRate, accountBurst)
	if ok && ask.Client.IsValid() {
		addr := ask.Client
		if addr.Is6() { // a household has a /64
			if p, err := addr.Prefix(64); err == nil {
				addr = p.Addr()
			}
		}
		ok, after = s.buckets.Take(ctx, "join-from:"+addr.String(), addressRate, addressBurst)
	}
	if !ok {
		return problem.New(problem.TooManyRequests, "Too many requests. Please wait a moment.").After(after)
	}
	return nil
}

// enter takes a place for an account without a token, or finds the one it has.
func (s *Service) enter(ctx context.Context, snap *snapshot, at *standing) (*snapshot, error) {
	for range 2 {
		now := s.Clock.Now()
		switch {
		case snap.doc.State == Closed:
			return snap, problem.New(problem.SaleClosed, "This waiting room is closed.")
		case now.Before(snap.doc.DrawOpensAt):
			return snap, problem.New(problem.NotOpenYet, "Joining opens later.").After(snap.doc.DrawOpensAt.Sub(now))
		}
		p := person{generation: snap.doc.Generation, account: at.account}
		m := snap.mark(at.account)
		p.score = m >> (64 - scoreBits)
		drawn := int64(0)
		if snap.list != nil {
			if drawn = snap.list.place(m); drawn > 0 {
				p.want = "d"
				if drawn > snap.doc.Serving {
					// Nobody joins again before being served: this is the place.
					at.place = drawn
					return snap, s.sign(snap, at)
				}
			}
		}
		got, err := s.view(snap.line.room).joins.Do(ctx, p)
		if err != nil {
			return snap, err
		}
		if got.lost {
			return snap, busy()
		}
		if got.reset {
			if snap, err = s.again(ctx, snap); err != nil {
				return snap, err
			}
			continue
		}
		if snap.list == nil && (got.code == lateNow || got.code == lateBefore || got.code == inList) {
			// The list was stored between our look and the script's run.
			if snap, err = s.again(ctx, snap); err != nil {
				return snap, err
			}
			if snap.list == nil || snap.doc.Generation != p.generation {
				return snap, busy()
			}
			drawn = snap.list.place(m)
		}
		at.settle(snap, got, drawn)
		return snap, s.sign(snap, at)
	}
	return snap, busy()
}

// again looks at a room of which we know an older generation.
func (s *Service) again(ctx context.Context, snap *snapshot) (*snapshot, error) {
	s.view(snap.line.room).forget()
	return s.look(ctx, snap.line.room)
}

// settle reads the script's answer.
func (at *standing) settle(snap *snapshot, got taken, drawn int64) {
	switch got.code {
	case drawnNow, drawnBefore:
		at.joined = got.code == drawnNow
	case lateNow, lateBefore:
		at.joined = got.code == lateNow
		at.late = got.late
		at.place = snap.list.Len() + got.late
	case inList:
		at.place = drawn
	default: // in the stream alone
		at.joined = true
		at.notice = NoticeQueued
	}
}

func (s *Service) sign(snap *snapshot, at *standing) (err error) {
	at.token, err = s.Tokens.IssuePlace(Place{
		Room: snap.line.room, Generation: snap.doc.Generation, Account: at.account, Late: at.late,
	})
	return err
}

// present reads a Place-Token. While one waits this makes no call; a person who
// was to be drawn and is not in the list gets a late number once.
func (s *Service) present(ctx context.Context, snap *snapshot, ask Ask, at *standing) error {
	p, err := s.Tokens.VerifyPlace(ask.PlaceToken)
	if err != nil {
		return err
	}
	if p.Room != ask.Room || p.Account != ask.Account {
		return problem.New(problem.BadToken, "The Place-Token is of another room or account.")
	}
	if p.Generation != snap.doc.Generation {
		if p.Generation > snap.doc.Generation {
			s.view(ask.Room).forget()
			return busy()
		}
		return WasReset()
	}
	at.late = p.Late
	switch {
	case snap.list == nil: // not drawn yet
		if p.Late > 0 {
			return busy() // a late number means a list: it must be somewhere
		}
	case p.Late > 0:
		at.place = snap.list.Len() + p.Late
	default:
		m := snap.mark(p.Account)
		if at.place = snap.list.place(m); at.place > 0 {
			return nil
		}
		if snap.doc.LineDown || !snap.fresh || snap.doc.State == Closed {
			at.notice = NoticeLater
			return nil
		}
		got, err := s.view(ask.Room).joins.Do(ctx, person{
			generation: snap.doc.Generation, account: p.Account, score: m >> (64 - scoreBits),
		})
		if err != nil {
			return err
		}
		if got.reset {
			s.view(ask.Room).forget()
			return WasReset()
		}
		at.settle(snap, got, 0)
		at.joined = false
		if at.late > 0 {
			return s.sign(snap, at)
		}
	}
	return nil
}

// rejoin takes a new place at the tail for who has lapsed, or whose admission is
// used or has ended.
func (s *Service) rejoin(ctx context.Context, snap *snapshot, at *standing) error {
	if at.place == 0 {
		if snap.list == nil {
			return problem.New(problem.WrongState, "You are in line already; your place stays yours.")
		}
		return problem.New(problem.Unavailable, NoticeLater).After(2 * time.Second)
	}
	if at.place > snap.doc.Serving {
		return problem.New(problem.WrongState, "You are in line already; your place stays yours.")
	}
	got, err := s.askAdmission(ctx, snap, at)
	if err != nil {
		return err
	}
	switch got.outcome {
	case "lapsed", "ended":
	case "same", "new":
		used := false
		if s.Used != nil {
			if used, err = s.Used(ctx, snap.sales, got.admit.Admission); err != nil {
				return err
			}
		}
		if !used {
			return problem.New(problem.WrongState, "You are admitted already; use that admission first.")
		}
		if err := s.letGo(ctx, got.admit); err != nil {
			return err
		}
		s.issued.forget(placeKey{snap.line.room, snap.doc.Generation, at.place})
	default:
		return problem.New(problem.WrongState, "You are in line already; your place stays yours.")
	}
	m := snap.mark(at.account)
	joined, err := s.view(snap.line.room).joins.Do(ctx, person{
		generation: snap.doc.Generation, account: at.account, score: m >> (64 - scoreBits), want: string(decimal(at.late)),
	})
	switch {
	case err != nil:
		return err
	case joined.reset:
		return WasReset()
	case joined.code != lateNow && joined.code != lateBefore:
		return problem.New(problem.Unavailable, NoticeLater).After(2 * time.Second)
	}
	at.settle(snap, joined, 0)
	return s.sign(snap, at)
}

// runJoins takes people into Redis by one script call and into the stream by one
// message. Who is in neither gets an error.
func (s *Service) runJoins(v *view, people []person) ([]taken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	snap, _, _ := v.known(s.Clock.Now())
	if snap == nil {
		return nil, busy()
	}
	out := make([]taken, len(people))
	now := make([]int, 0, len(people)) // of this generation
	for i, p := range people {
		if p.generation != snap.doc.Generation {
			out[i].reset = true
			continue
		}
		if snap.list != nil && p.want == "" && snap.list.place(snap.mark(p.account)) > 0 {
			// Who asked before the list was known here, and is in it, must not be
			// given a late number.
			people[i].want = "d"
		}
		now = append(now, i)
	}
	if len(now) == 0 {
		return out, nil
	}
	if snap.list == nil {
		// In the draw both are told at once: the stream needs nothing of Redis.
		published := make(chan error, 1)
		go func() { published <- s.publishJoins(ctx, v.room, snap, people, now, nil) }()
		s.runScript(ctx, snap, people, now, out)
		err := <-published
		for _, i := range now {
			out[i].lost = err != nil && !out[i].stored()
		}
		return out, nil
	}
	// Late numbers are in the stream as Redis gave them.
	s.runScript(ctx, snap, people, now, out)
	var fresh []int
	for _, i := range now {
		if !out[i].reset && out[i].code != lateBefore && out[i].code != inList {
			fresh = append(fresh, i)
		}
	}
	if len(fresh) == 0 {
		return out, nil
	}
	err := s.publishJoins(ctx, v.room, snap, people, fresh, out)
	for _, i := range fresh {
		out[i].lost = err != nil && !out[i].stored()
	}
	return out, nil
}

// stored says whether Redis has kept the join.
func (t taken) stored() bool {
	return t.code == drawnNow || t.code == drawnBefore || t.code == lateNow || t.code == lateBefore || t.code == inList
}

// publishJoins puts people into the stream, by one message, with their late
// numbers when out has them.
func (s *Service) publishJoins(ctx context.Context, room int64, snap *snapshot, people []person, which []int, out []taken) error {
	m := message{Generation: snap.doc.Generation, Accounts: make([]string, len(which)), Late: make([]int64, len(which))}
	for n, i := range which {
		m.Accounts[n] = people[i].account
		if out != nil && out[i].late > 0 {
			m.Late[n], m.Identity = out[i].late, out[i].identity
		}
	}
	return s.joins.publish(ctx, room, m, "")
}

// runScript fills out for the people at the indexes now; a Redis that is away
// leaves their code 0.
func (s *Service) runScript(ctx context.Context, snap *snapshot, people []person, now []int, out []taken) {
	ask := func(which []int) ([]taken, bool) {
		part := make([]person, len(which))
		for n, i := range which {
			part[n] = people[i]
		}
		got, err := snap.line.join(ctx, snap.list != nil, part)
		if err != nil {
			return nil, false
		}
		return got, true
	}
	for try := range 2 {
		if len(now) == 0 {
			return
		}
		got, ok := ask(now)
		if !ok {
			return
		}
		var dry []int
		for n, i := range now {
			out[i] = got[n]
			if got[n].code == blockIsEmpty {
				dry = append(dry, i)
			}
		}
		if len(dry) == 0 || try == 1 {
			return
		}
		if err := s.reserve(ctx, snap.line, got[0].identity, snap.doc.AdmitPerSecond, len(dry)); err != nil {
			return
		}
		now = dry
	}
}

// answer tells a person where they stand, and admits who is served.
func (s *Service) answer(ctx context.Context, snap *snapshot, at *standing) (Answer, error) {
	a := Answer{PlaceToken: at.token, Status: snap.public, Joined: at.joined, Notice: at.notice}
	if at.place > 0 {
		a.Place = &at.place
	}
	doc := snap.doc
	now := s.Clock.Now()
	switch {
	case doc.State == Closed:
		a.State = Closed
	case snap.list == nil:
		a.State = doc.at(now, true).State
		if a.State != Before && a.State != Paused {
			a.State = Drawing
		}
	case at.place == 0 || at.place > doc.Serving:
		a.State = waitingState(doc)
	default:
		if err := s.admit(ctx, snap, at, &a); err != nil {
			return Answer{}, err
		}
	}
	if a.Notice == "" && a.AdmitToken == "" && s.old(snap) {
		a.Notice = NoticeMaintenance
	}
	if a.PollAfterMS == 0 {
		a.PollAfterMS = pollAfter(a.State, doc, at.place, now).Milliseconds()
	}
	return a, nil
}

// waitingState is the state of who is not served and sees the room's instead.
func waitingState(doc *document) State {
	switch doc.State {
	case Paused, SoldOut:
		return doc.State
	}
	return Waiting
}

// pollAfter is when to ask again: spread at random, so that the close of a draw
// and a sell-out make no herd, seldom while one's turn is far.
func pollAfter(state State, doc *document, place int64, now time.Time) time.Duration {
	between := func(from, to time.Duration) time.Duration { return from + rand.N(to-from) }
	switch state {
	case Before:
		return min(max(doc.DrawOpensAt.Sub(now), 0)+between(0, 2*time.Second), between(20*time.Second, 40*time.Second))
	case Drawing:
		left := max(doc.DrawEndsAt.Sub(now), 0)
		if left > 12*time.Second {
			return between(5*time.Second, 10*time.Second)
		}
		return left + between(time.Second, 5*time.Second)
	case Waiting:
		eta := time.Duration(float64(place-doc.Serving) / doc.AdmitPerSecond * float64(time.Second))
		near := min(max(eta/4, 2*time.Second), 15*time.Second)
		if place == 0 {
			near = 5 * time.Second
		}
		return between(near*4/5, near*6/5)
	case Served, Standby:
		return between(20*time.Second, 30*time.Second)
	case Closed:
		return between(60*time.Second, 120*time.Second)
	}
	return between(4*time.Second, 8*time.Second) // paused, sold out, lapsed
}

func (sn *snapshot) mark(account string) uint64 {
	of := sn.marks.Get().(func(string) uint64)
	defer sn.marks.Put(of)
	return of(account)
}

// isBusy says whether err only means that a service is away.
func isBusy(err error) bool {
	return problem.Is(err, problem.Unavailable) || errors.Is(err, context.DeadlineExceeded)
}
