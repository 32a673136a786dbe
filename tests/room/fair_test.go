package room_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"testing"

	"handler/function/shared/room"
)

// rankCorrelation is Spearman's: 1 for the same order, -1 for the opposite,
// about 0 for none. places[i] is the place of who came i-th.
func rankCorrelation(places []int64) float64 {
	n := float64(len(places))
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(places[a] - places[b]) })
	var sum float64
	for rank, i := range order {
		d := float64(rank - i)
		sum += d * d
	}
	return 1 - 6*sum/(n*(n*n-1))
}

// fair says whether places have no relation to the moment of joining: the
// correlation over n people is normal with deviation 1/sqrt(n-1); five of them
// happen once in 1.7 million draws.
func fair(places []int64) bool {
	return math.Abs(rankCorrelation(places)) < 5/math.Sqrt(float64(len(places)-1))
}

// Over a draw of 20,000 there is no relation between the moment of joining and
// the place, also not for the first or the last thousand.
func TestDrawOf20000IsFair(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	const n = 20_000
	id := w.room(room.Settings{Draw: seconds(600), AdmitPerSecond: 100})
	each(t, n, func(i int) error {
		_, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprintf("account-%06d", i)})
		return err
	})
	if err := room.Patch(t.Context(), w.admin, id, room.Change{Draw: seconds(0)}); err != nil {
		t.Fatal(err)
	}
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	st := status(t, s, id)
	if *st.Drawn != n {
		t.Fatalf("%d of %d were drawn", *st.Drawn, n)
	}
	places := make([]int64, n)
	each(t, n, func(i int) error {
		a, err := s.Join(context.Background(), room.Ask{Room: id, Account: fmt.Sprintf("account-%06d", i)})
		places[i] = placeOf(a)
		return err
	})
	seen := slices.Clone(places)
	slices.Sort(seen)
	for i, p := range seen {
		if p != int64(i+1) {
			t.Fatalf("the places are not 1 to %d: %d at %d", n, p, i)
		}
	}
	t.Logf("rank correlation over %d people: %+.4f", n, rankCorrelation(places))
	for name, part := range map[string][]int64{"all": places, "the first 1,000": places[:1000], "the last 1,000": places[n-1000:]} {
		if !fair(part) {
			t.Errorf("%s: correlation %+.4f", name, rankCorrelation(part))
		}
	}
	var mean float64
	for _, p := range places[:1000] {
		mean += float64(p) / 1000
	}
	if dev := float64(n) / math.Sqrt(12*1000); math.Abs(mean-n/2) > 5*dev {
		t.Errorf("the first 1,000 have the mean place %.0f of %d", mean, n)
	}
	// The test fails when the draw is replaced by the order of arrival, or leans to it.
	arrival, leaning := make([]int64, n), make([]int64, n)
	for i := range arrival {
		arrival[i] = int64(i + 1)
		leaning[i] = places[i] + int64(i)/5
	}
	if fair(arrival) || fair(leaning) {
		t.Error("the test does not see an order of arrival")
	}
	verifyFromOutside(t, s, id, st, places)
}

// verifyFromOutside repeats the draw from public data alone, by docs/room.md.
func verifyFromOutside(t *testing.T, s *room.Service, id int64, st room.Status, places []int64) {
	t.Helper()
	seed, err := hex.DecodeString(st.DrawSeed)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(seed); hex.EncodeToString(sum[:]) != st.DrawCommitment {
		t.Fatal("the seed is not the one that was committed to")
	}
	var list []byte
	for page := 0; int64(len(list)) < 8**st.Drawn; page++ {
		part, err := s.ListPage(t.Context(), id, st.Generation, page)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, part...)
	}
	if sum := sha256.Sum256(list); hex.EncodeToString(sum[:]) != st.DrawListHash {
		t.Fatal("the list is not the one that was published")
	}
	for i := 0; i < len(places); i += 97 {
		score := make([]byte, 8)
		binary.BigEndian.PutUint64(score, room.Score([32]byte(seed), id, st.Generation, fmt.Sprintf("account-%06d", i)))
		at := 8 * int(places[i]-1)
		if !bytes.Equal(list[at:at+8], score) {
			t.Fatalf("person %d is not at place %d of the public list", i, places[i])
		}
	}
}

// A draw without anyone, and the page of its list.
func TestEmptyDraw(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.replica("")
	id := w.room(room.Settings{Draw: seconds(1)})
	if _, err := s.ListPage(t.Context(), id, 1, 0); code(err) != "not-found" {
		t.Fatalf("a list before the close: %v", err)
	}
	w.run(w.replica(""))
	until(t, "the list", func() bool { return status(t, s, id).DrawListHash != "" })
	page, err := s.ListPage(t.Context(), id, 1, 0)
	if err != nil || len(page) != 0 {
		t.Fatalf("%d bytes, %v", len(page), err)
	}
	if _, err := s.ListPage(t.Context(), id, 1, 1); code(err) != "not-found" {
		t.Fatalf("a page too many: %v", err)
	}
	if p := placeOf(join(t, s, id, "a", "")); p != 1 {
		t.Fatalf("the first late person has place %d", p)
	}
}
