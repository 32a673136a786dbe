package room_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"handler/function/shared/problem"
	"handler/function/shared/room"
)

func decode(t testing.TB, s *room.Service, id int64) room.Status {
	t.Helper()
	b, err := s.Status(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	var st room.Status
	if err := json.Unmarshal(b, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func placeOf(a room.Answer) int64 {
	if a.Place == nil {
		return 0
	}
	return *a.Place
}

func code(err error) problem.Code {
	var p *problem.Error
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// The life of a room: joining, the draw, waiting, admission, late joins.
func TestRoomFromDrawToAdmission(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s, ticker := w.replica(""), w.replica("")
	id := w.room(room.Settings{Draw: seconds(2), AdmitPerSecond: 20})
	w.run(ticker)

	const n = 60
	first := crowd(t, s, id, "p", n)
	for i, a := range first {
		if !a.Joined || a.State != room.Drawing || a.Place != nil || a.PlaceToken == "" || a.PollAfterMS <= 0 {
			t.Fatalf("person %d before the close: %+v", i, a)
		}
	}
	if st := status(t, s, id); st.State != room.Drawing || st.DrawSeed != "" || st.DrawCommitment == "" || st.DrawListHash != "" {
		t.Fatalf("status in the draw: %+v", st)
	}
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	places := map[int64]int{}
	for i, a := range first {
		b := join(t, s, id, fmt.Sprint("p", i), a.PlaceToken)
		if p := placeOf(b); p < 1 || p > n {
			t.Fatalf("person %d has place %d", i, p)
		} else if other, twice := places[p]; twice {
			t.Fatalf("place %d is of %d and %d", p, other, i)
		}
		places[placeOf(b)] = i
		// Asking without the token says the same.
		if c := join(t, s, id, fmt.Sprint("p", i), ""); placeOf(c) != placeOf(b) || c.Joined {
			t.Fatalf("without the token person %d has %d, with it %d", i, placeOf(c), placeOf(b))
		}
	}
	late := join(t, s, id, "late", "")
	if !late.Joined || placeOf(late) != n+1 {
		t.Fatalf("the first late person: %+v", late)
	}
	if again := join(t, s, id, "late", late.PlaceToken); placeOf(again) != n+1 || again.Joined {
		t.Fatalf("asked again: %+v", again)
	}
	verifier := room.NewTokens(w.keys, nil)
	var admitted room.Answer
	until(t, "the late person is admitted", func() bool {
		admitted = join(t, s, id, "late", late.PlaceToken)
		return admitted.AdmitToken != ""
	})
	admit, err := verifier.VerifyAdmit(admitted.AdmitToken)
	if err != nil || admit.Account != "late" || admit.Room != id || admit.For != room.ForHold {
		t.Fatalf("%+v %v", admit, err)
	}
	if again := join(t, s, id, "late", late.PlaceToken); again.AdmitToken != admitted.AdmitToken || again.State != room.Served {
		t.Fatalf("asking again gives another admission: %+v", again)
	}
	// Another replica gives the same.
	if again := join(t, w.replica(""), id, "late", ""); again.AdmitToken != admitted.AdmitToken {
		t.Fatalf("another replica gives another admission: %+v", again)
	}
	var rows int
	if err := w.db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM admission WHERE account = 'late'`).Scan(&rows); err != nil || rows != 1 {
		t.Fatalf("%d admissions, %v", rows, err)
	}
}

func TestJoiningBeforeOpening(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{DrawOpensAt: time.Now().Add(time.Hour)})
	_, err := s.Join(t.Context(), room.Ask{Room: id, Account: "a"})
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != problem.NotOpenYet || p.RetryAfter < 30*time.Minute {
		t.Fatalf("%v", err)
	}
	if st := status(t, s, id); st.State != room.Before {
		t.Fatalf("%+v", st)
	}
}

// field case 34: joining again moved people to the back.
func TestJoiningTwentyTimesWinsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(2), AdmitPerSecond: 0.01})
	crowd(t, s, id, "p", 30)
	each(t, 20, func(int) error {
		a, err := s.Join(context.Background(), room.Ask{Room: id, Account: "eager"})
		if err == nil && a.State != room.Drawing {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	if st := status(t, s, id); *st.Drawn != 31 {
		t.Fatalf("%d people were drawn of 31", *st.Drawn)
	}
	place := placeOf(join(t, s, id, "eager", ""))
	late := placeOf(join(t, s, id, "late", ""))
	for range 15 {
		if p := placeOf(join(t, s, id, "eager", "")); p != place {
			t.Fatalf("the place was %d and is %d", place, p)
		}
		if p := placeOf(join(t, s, id, "late", "")); p != late {
			t.Fatalf("the late place was %d and is %d", late, p)
		}
	}
}

// field case 35: scores above 2^53 rounded; field case 36: equal scores sorted by
// name. Late people stand in the order of arrival, however close.
func TestLatePeopleStandInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0), AdmitPerSecond: 0.01})
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	last := int64(0)
	for i := range 100 {
		a := join(t, s, id, fmt.Sprint("z", 999-i), "") // names against the order
		if placeOf(a) <= last {
			t.Fatalf("person %d came after place %d and has %d", i, last, placeOf(a))
		}
		last = placeOf(a)
	}
	// And a counter beyond 2^53 is never rounded into the same number twice.
	if _, err := w.db.Owner.Exec(t.Context(), `UPDATE room SET reserved = $2 WHERE room_id = $1`, id, int64(1)<<52-200); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	tries := 0
	until(t, "numbers again", func() bool {
		tries++
		return placeOf(join(t, s, id, fmt.Sprint("first", tries), "")) > 1<<51
	})
	for i := range 300 {
		p := placeOf(join(t, s, id, fmt.Sprint("n", i), ""))
		if p == 0 || seen[p] {
			t.Fatalf("place %d was given twice", p)
		}
		seen[p] = true
	}
}

// field case 37: two people with the same place after a third left.
func TestLeavingMovesNobody(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(1.5), AdmitPerSecond: 0.01})
	answers := crowd(t, s, id, "abcd", 4)
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	before := map[string]int64{}
	for i, a := range answers {
		before[fmt.Sprint("abcd", i)] = placeOf(join(t, s, id, fmt.Sprint("abcd", i), a.PlaceToken))
	}
	// B leaves: it never asks again. E joins.
	e := placeOf(join(t, s, id, "e", ""))
	seen := map[int64]bool{e: true}
	for i, a := range answers {
		name := fmt.Sprint("abcd", i)
		p := placeOf(join(t, s, id, name, a.PlaceToken))
		if p != before[name] || seen[p] {
			t.Fatalf("%s had %d and has %d; E has %d", name, before[name], p, e)
		}
		seen[p] = true
	}
	if e != 5 {
		t.Fatalf("E has place %d", e)
	}
}

// field case 28: people who left used up the admissions.
func TestWhoLeavesUsesUpNoAdmission(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	// 10 a minute in the report; 10 a second here, so that the test is short.
	id := w.room(room.Settings{Draw: seconds(1.5), AdmitPerSecond: 10})
	answers := crowd(t, s, id, "p", 30)
	w.run(w.replica(""), w.replica(""))
	stayed := 0
	until(t, "all 20 who stayed are admitted", func() bool {
		stayed = 0
		for i := 10; i < 30; i++ { // the first ten have left
			if join(t, s, id, fmt.Sprint("p", i), answers[i].PlaceToken).AdmitToken != "" {
				stayed++
			}
		}
		return stayed == 20
	})
}

// field case 31: an old place after the room was reset.
func TestOldPlaceAfterReset(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(0.5), AdmitPerSecond: 10})
	old := join(t, s, id, "a", "")
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	before := status(t, s, id)
	if err := room.Reset(t.Context(), w.admin, w.draw, id); err != nil {
		t.Fatal(err)
	}
	until(t, "a clear 410", func() bool {
		_, err := s.Join(context.Background(), room.Ask{Room: id, Account: "a", PlaceToken: old.PlaceToken})
		return code(err) == problem.RoomReset
	})
	until(t, "the new generation", func() bool { return status(t, s, id).Generation == before.Generation+1 })
	after := status(t, s, id)
	if after.Generation != before.Generation+1 || after.DrawCommitment == before.DrawCommitment || after.Serving != 0 {
		t.Fatalf("%+v", after)
	}
	if _, err := s.ListPage(t.Context(), id, before.Generation, 0); code(err) != problem.RoomReset {
		t.Fatalf("the old list: %v", err)
	}
	if a := join(t, s, id, "a", ""); !a.Joined {
		t.Fatalf("joining anew: %+v", a)
	}
}

func TestTokensOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id, other := w.room(room.Settings{Draw: seconds(60)}), w.room(room.Settings{Draw: seconds(60)})
	a := join(t, s, id, "a", "")
	for name, ask := range map[string]room.Ask{
		"another account's": {Room: id, Account: "b", PlaceToken: a.PlaceToken},
		"another room's":    {Room: other, Account: "a", PlaceToken: a.PlaceToken},
		"forged":            {Room: id, Account: "a", PlaceToken: a.PlaceToken[:len(a.PlaceToken)-3] + "AAA"},
	} {
		if _, err := s.Join(t.Context(), ask); code(err) != problem.BadToken {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Join(t.Context(), room.Ask{Room: 4_000_000, Account: "a"}); code(err) != problem.NotFound {
		t.Errorf("no such room: %v", err)
	}
}

func TestLapseAndJoiningAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(1), AdmitPerSecond: 50, Lapse: 2 * time.Second, Admit: 2 * time.Second})
	sleeper, buyer := join(t, s, id, "sleeper", ""), join(t, s, id, "buyer", "")
	w.run(w.replica(""))
	rejoin := func(account, token string) (room.Answer, error) {
		return s.Join(context.Background(), room.Ask{Room: id, Account: account, PlaceToken: token, Rejoin: true})
	}
	if _, err := rejoin("sleeper", sleeper.PlaceToken); code(err) != problem.WrongState {
		t.Fatalf("joining again in the draw: %v", err)
	}
	var in room.Answer
	until(t, "the buyer is in", func() bool {
		in = join(t, s, id, "buyer", buyer.PlaceToken)
		return in.AdmitToken != ""
	})
	if _, err := rejoin("buyer", buyer.PlaceToken); code(err) != problem.WrongState {
		t.Fatalf("joining again with an unused admission: %v", err)
	}
	admit, err := room.NewTokens(w.keys, nil).VerifyAdmit(in.AdmitToken)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.used[admit.Admission] = true
	w.mu.Unlock()
	again, err := rejoin("buyer", buyer.PlaceToken)
	if err != nil || placeOf(again) != 3 {
		t.Fatalf("joining again after buying: %+v %v", again, err)
	}
	if twice, err := rejoin("buyer", buyer.PlaceToken); err != nil || placeOf(twice) != 3 {
		t.Fatalf("the answer was lost and asked again: %+v %v", twice, err)
	}
	if without := join(t, s, id, "buyer", ""); placeOf(without) != 3 {
		t.Fatalf("without the token: %+v", without)
	}
	until(t, "the sleeper lapses", func() bool { return status(t, s, id).Lapsed >= 2 })
	if a := join(t, s, id, "sleeper", sleeper.PlaceToken); a.State != room.Lapsed || a.AdmitToken != "" {
		t.Fatalf("lapsed: %+v", a)
	}
	back, err := rejoin("sleeper", sleeper.PlaceToken)
	if err != nil || placeOf(back) != 4 {
		t.Fatalf("%+v %v", back, err)
	}
	until(t, "the sleeper is in after all", func() bool {
		return join(t, s, id, "sleeper", back.PlaceToken).AdmitToken != ""
	})
}
