package room

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"handler/function/shared/key"
)

func ring(t testing.TB, file string) key.Ring {
	t.Helper()
	r, err := key.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The rule of docs/room.md, written out once more by hand.
func TestScoreIsTheFirst52BitsOfTheHMAC(t *testing.T) {
	var seed [32]byte
	copy(seed[:], "0123456789abcdef0123456789abcdef")
	h := hmac.New(sha256.New, seed[:])
	for _, part := range []string{"7", "2", "zoë@example.org"} {
		_ = binary.Write(h, binary.BigEndian, uint32(len(part)))
		h.Write([]byte(part))
	}
	want := binary.BigEndian.Uint64(h.Sum(nil)) / (1 << 12)
	if got := Score(seed, 7, 2, "zoë@example.org"); got != want || got >= 1<<52 {
		t.Fatalf("score %d, want %d", got, want)
	}
}

func TestPartsOfAScoreDoNotRunTogether(t *testing.T) {
	var seed [32]byte
	if Score(seed, 1, 23, "4") == Score(seed, 12, 3, "4") || Score(seed, 1, 2, "34") == Score(seed, 1, 23, "4") {
		t.Fatal("room, generation and account are not kept apart")
	}
}

func TestSeedIsFoundAfterTheDrawSecretWasRotated(t *testing.T) {
	older := ring(t, "k1:"+strings.Repeat("11", 32))
	newer := ring(t, "k2:"+strings.Repeat("22", 32)+"\nk1:"+strings.Repeat("11", 32))
	c := Commitment(Seed(older.Sign(), 3, 1))
	seed, ok := SeedFor(newer, 3, 1, c[:])
	if !ok || seed != Seed(older.Sign(), 3, 1) {
		t.Fatal("the seed that was committed to is lost")
	}
	if _, ok := SeedFor(newer, 3, 2, c[:]); ok {
		t.Fatal("a commitment fits another generation")
	}
}

func TestListPlacesEveryoneOnceAndNobodyElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seed [32]byte
		n := rapid.IntRange(0, 2_000).Draw(t, "people")
		seed[0] = byte(rapid.IntRange(0, 255).Draw(t, "seed"))
		accounts := make([]string, n)
		for i := range accounts {
			accounts[i] = fmt.Sprint("a", i)
		}
		l := draw(seed, 5, 1, append(slices.Clone(accounts), accounts[:n/2]...))
		if l.Len() != int64(n) {
			t.Fatalf("%d of %d people", l.Len(), n)
		}
		seen := make([]bool, n+1)
		for _, a := range accounts {
			p := l.place(mark(seed, 5, 1, a))
			if p < 1 || p > int64(n) || seen[p] {
				t.Fatalf("%s has the place %d", a, p)
			}
			seen[p] = true
		}
		for i := range 100 {
			if p := l.place(mark(seed, 5, 1, fmt.Sprint("late", i))); p != 0 {
				t.Fatalf("who did not join has the place %d", p)
			}
		}
		again, err := readList(l.bytes())
		if err != nil || again.Hash() != l.Hash() {
			t.Fatalf("the stored list differs: %v", err)
		}
	})
}

func TestEqualScoresAreLateButForTheFirst(t *testing.T) {
	score := uint64(12345) << 12
	l := freeze([]entry{{score | 7, "b"}, {score | 9, "a"}, {score | 1, "c"}, {1 << 20, "x"}})
	if l.Len() != 2 {
		t.Fatalf("%d places", l.Len())
	}
	if p := l.place(score | 9); p != 2 {
		t.Fatalf("the first by account has place %d", p)
	}
	for _, m := range []uint64{score | 7, score | 1} {
		if p := l.place(m); p != 0 {
			t.Fatalf("another of the same score has place %d too", p)
		}
	}
}

func TestPublicListIsScores(t *testing.T) {
	var seed [32]byte
	l := draw(seed, 1, 1, []string{"a", "b", "c"})
	var want []uint64
	for _, a := range []string{"a", "b", "c"} {
		want = append(want, Score(seed, 1, 1, a))
	}
	slices.Sort(want)
	page := l.Page(0, PageScores)
	for i, w := range want {
		if got := binary.BigEndian.Uint64(page[8*i:]); got != w {
			t.Fatalf("score %d is %d, want %d", i, got, w)
		}
	}
	sum := sha256.Sum256(page)
	if l.Hash() != hex.EncodeToString(sum[:]) {
		t.Fatal("the hash is not of the public list")
	}
	if len(l.Page(2, 5)) != 8 || len(l.Page(3, 5)) != 0 || len(l.Page(-1, 1)) != 8 {
		t.Fatal("pages at the edges")
	}
}

func TestStoredListIsChecked(t *testing.T) {
	if _, err := readList(make([]byte, 12)); err == nil {
		t.Fatal("a cut list is read")
	}
	if _, err := readList(make([]byte, 16)); err == nil {
		t.Fatal("a list with a score twice is read")
	}
}

func BenchmarkListPlace(b *testing.B) {
	var seed [32]byte
	accounts := make([]string, 200_000)
	for i := range accounts {
		accounts[i] = fmt.Sprint("account-", i)
	}
	l := draw(seed, 1, 1, accounts)
	marks := make([]uint64, 1024)
	for i := range marks {
		marks[i] = mark(seed, 1, 1, accounts[i*100])
	}
	b.ResetTimer()
	for i := range b.N {
		if l.place(marks[i&1023]) == 0 {
			b.Fatal("lost")
		}
	}
}

func BenchmarkDraw200000(b *testing.B) {
	var seed [32]byte
	accounts := make([]string, 200_000)
	for i := range accounts {
		accounts[i] = fmt.Sprint("account-", i)
	}
	for b.Loop() {
		draw(seed, 1, 1, accounts)
	}
}
