package room_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"handler/function/cmd/holdfast/verify"
	"handler/function/shared/room"
)

// public serves what a customer may ask, as join-room does, and lets a test
// change it on the way.
func public(t *testing.T, s *room.Service, change func(status *room.Status, list []byte) []byte) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.ParseInt(r.URL.Query().Get("room"), 10, 64)
		var st room.Status
		b, err := s.Status(r.Context(), id)
		if err == nil {
			err = json.Unmarshal(b, &st)
		}
		var list []byte
		if err == nil && r.URL.Query().Has("list") {
			g, _ := strconv.ParseInt(r.URL.Query().Get("list"), 10, 64)
			page, _ := strconv.Atoi(r.URL.Query().Get("page"))
			list, err = s.ListPage(r.Context(), id, g, page)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if change != nil {
			list = change(&st, list)
		}
		if r.URL.Query().Has("list") {
			_, _ = w.Write(list)
			return
		}
		_ = json.NewEncoder(w).Encode(st)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestDrawVerify(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(600), AdmitPerSecond: 0.01})
	crowd(t, s, id, "p", 500)
	honest := public(t, s, nil)
	q := verify.Question{URL: honest, Room: fmt.Sprint(id), Account: "p7", Commitment: status(t, s, id).DrawCommitment}
	if _, err := verify.Check(t.Context(), q); err == nil || !strings.Contains(err.Error(), "not closed") {
		t.Fatalf("before the close: %v", err)
	}
	if err := room.Patch(t.Context(), w.admin, id, room.Change{Draw: seconds(0)}); err != nil {
		t.Fatal(err)
	}
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	q.Place = placeOf(join(t, s, id, "p7", ""))
	a, err := verify.Check(t.Context(), q)
	if err != nil || len(a.Wrong) > 0 || a.Drawn != 500 || a.Place != q.Place {
		t.Fatalf("%+v %v", a, err)
	}
	late := verify.Question{URL: honest, Room: q.Room, Account: "late", Place: placeOf(join(t, s, id, "late", ""))}
	if a, err := verify.Check(t.Context(), late); err != nil || len(a.Wrong) > 0 || a.Place != 0 {
		t.Fatalf("late: %+v %v", a, err)
	}
	// The platform's own word is not enough: each of these is seen.
	var other [32]byte
	otherSum := sha256.Sum256(other[:])
	for name, change := range map[string]func(st *room.Status, list []byte) []byte{
		"another seed": func(st *room.Status, list []byte) []byte {
			st.DrawSeed = hex.EncodeToString(other[:])
			return list
		},
		"another seed and commitment": func(st *room.Status, list []byte) []byte {
			st.DrawSeed, st.DrawCommitment = hex.EncodeToString(other[:]), hex.EncodeToString(otherSum[:])
			return list
		},
		"two people exchanged": func(st *room.Status, list []byte) []byte {
			if len(list) > 0 {
				var x [8]byte
				copy(x[:], list[:8])
				copy(list[:8], list[8:16])
				copy(list[8:16], x[:])
			}
			return list
		},
		"somebody put in front": func(st *room.Status, list []byte) []byte {
			if len(list) > 0 {
				binary.BigEndian.PutUint64(list, 1)
			}
			return list
		},
	} {
		dishonest := q
		dishonest.URL = public(t, s, change)
		if a, err := verify.Check(t.Context(), dishonest); err != nil || len(a.Wrong) == 0 {
			t.Errorf("%s is not seen: %+v %v", name, a, err)
		}
	}
	// Told another place than the list's.
	q.Place++
	if a, err := verify.Check(context.Background(), q); err != nil || len(a.Wrong) != 1 {
		t.Errorf("another place is not seen: %+v %v", a, err)
	}
}
