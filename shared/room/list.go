package room

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/bits"
	"slices"
)

// PageScores is how many scores a page of the public list holds (512 KiB).
const PageScores = 65_536

// List is the frozen list of a draw: one mark (see mark) a person, ascending, no
// two with the same score. A place is the position in it, from 1. It is shared
// and never written after it is made: 8 bytes a person in each replica.
type List struct {
	marks []uint64
	hash  [32]byte // SHA-256 of the public list
}

// draw makes the list of all who were drawn. Who has the same score as another
// is late, but for the first by account; so is nobody else. Accounts may come
// more than once and in any order.
func draw(seed [32]byte, room, generation int64, accounts []string) *List {
	entries := make([]entry, len(accounts))
	markOf := marker(seed, room, generation)
	for i, a := range accounts {
		entries[i] = entry{mark: markOf(a), account: a}
	}
	return freeze(entries)
}

type entry struct {
	mark    uint64
	account string
}

func freeze(entries []entry) *List {
	slices.SortFunc(entries, func(a, b entry) int {
		if c := cmp.Compare(a.mark>>(64-scoreBits), b.mark>>(64-scoreBits)); c != 0 {
			return c
		}
		return cmp.Compare(a.account, b.account)
	})
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.mark>>(64-scoreBits) == b.mark>>(64-scoreBits) })
	l := &List{marks: make([]uint64, len(entries))}
	for i, e := range entries {
		l.marks[i] = e.mark
	}
	l.hash = sha256.Sum256(l.Page(0, len(l.marks)))
	return l
}

// Len is how many people were drawn.
func (l *List) Len() int64 { return int64(len(l.marks)) }

// Hash is the published hash: SHA-256 over all scores, 8 bytes each.
func (l *List) Hash() string { return hex.EncodeToString(l.hash[:]) }

// place is the place of a mark, from 1, or 0 when it is not in the list. Marks
// are spread evenly, so it looks where the mark should stand and then nearby.
func (l *List) place(mark uint64) int64 {
	n := len(l.marks)
	if n == 0 {
		return 0
	}
	guess, _ := bits.Mul64(mark, uint64(n)) // mark/2^64 * n
	lo, hi := int(guess), int(guess)
	for step := 8; lo > 0 && l.marks[lo] > mark; step *= 2 {
		lo = max(0, lo-step)
	}
	for step := 8; hi < n && l.marks[hi] < mark; step *= 2 {
		hi = min(n, hi+step)
	}
	i, found := slices.BinarySearch(l.marks[lo:min(n, hi+1)], mark)
	if !found {
		return 0
	}
	return int64(lo + i + 1)
}

// Page is scores from (0-based) to the n-th after it as the public list has
// them: 8 bytes each, big-endian, ascending.
func (l *List) Page(from, n int) []byte {
	from = min(max(from, 0), len(l.marks))
	part := l.marks[from:min(len(l.marks), from+n)]
	out := make([]byte, 0, 8*len(part))
	for _, m := range part {
		out = binary.BigEndian.AppendUint64(out, m>>(64-scoreBits))
	}
	return out
}

// Pages is how many pages the public list has.
func (l *List) Pages() int { return (len(l.marks) + PageScores - 1) / PageScores }

// bytes is the list as it is stored: marks, 8 bytes each, big-endian.
func (l *List) bytes() []byte {
	out := make([]byte, 0, 8*len(l.marks))
	for _, m := range l.marks {
		out = binary.BigEndian.AppendUint64(out, m)
	}
	return out
}

// readList reads stored bytes and refuses what is no list.
func readList(b []byte) (*List, error) {
	if len(b)%8 != 0 {
		return nil, errors.New("room: a stored list is cut off")
	}
	l := &List{marks: make([]uint64, len(b)/8)}
	for i := range l.marks {
		l.marks[i] = binary.BigEndian.Uint64(b[8*i:])
		if i > 0 && l.marks[i-1]>>(64-scoreBits) >= l.marks[i]>>(64-scoreBits) {
			return nil, errors.New("room: a stored list is not in order")
		}
	}
	l.hash = sha256.Sum256(l.Page(0, len(l.marks)))
	return l, nil
}
