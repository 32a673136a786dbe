// Package verify checks a waiting room's draw from public data alone: the status
// and the frozen list, by the rules of docs/room.md. It asks nothing of the
// platform that a customer cannot ask.
package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"handler/function/shared/room"
)

// Question is what to check.
type Question struct {
	URL        string // the gateway, as in https://tickets.example.org
	Room       string
	Commitment string // noted before the draw, hex; empty: the one now published
	Account    string // whose place to look up; empty: none
	Place      int64  // the place that account was told; 0: not compared
}

// Answer is what was found. Wrong is empty when the draw holds.
type Answer struct {
	Room       string   `json:"room"`
	Generation int64    `json:"generation"`
	Commitment string   `json:"draw_commitment"`
	Seed       string   `json:"draw_seed"`
	ListHash   string   `json:"draw_list_hash"`
	Drawn      int64    `json:"drawn"`
	Account    string   `json:"account,omitempty"`
	Score      uint64   `json:"score,omitempty"`
	Place      int64    `json:"place,omitempty"` // by the list; 0: not in it
	Wrong      []string `json:"wrong"`
}

const (
	maxStatus = 1 << 20 // bytes
	maxPeople = 50_000_000
	patience  = 10 // tries of a page while others read
)

// Check fetches status and list and repeats the draw. The error is about
// fetching; what is wrong with the draw stands in Answer.Wrong.
func Check(ctx context.Context, q Question) (Answer, error) {
	base := strings.TrimRight(q.URL, "/") + "/function/join-room?room=" + url.QueryEscape(q.Room)
	var st room.Status
	body, err := fetch(ctx, base, maxStatus)
	if err != nil {
		return Answer{}, err
	}
	if err := json.Unmarshal(body, &st); err != nil {
		return Answer{}, fmt.Errorf("the status is no JSON: %w", err)
	}
	if st.DrawSeed == "" || st.DrawListHash == "" || st.Drawn == nil {
		return Answer{}, errors.New("the draw is not closed yet: its seed and list are public after it")
	}
	a := Answer{
		Room: st.Room, Generation: st.Generation, Commitment: st.DrawCommitment, Seed: st.DrawSeed,
		ListHash: st.DrawListHash, Drawn: *st.Drawn, Account: q.Account, Wrong: []string{},
	}
	wrong := func(format string, args ...any) { a.Wrong = append(a.Wrong, fmt.Sprintf(format, args...)) }
	seed, err := hex.DecodeString(st.DrawSeed)
	if err != nil || len(seed) != 32 {
		return a, errors.New("the published seed is not 32 bytes in hex")
	}
	sum := sha256.Sum256(seed)
	if got := hex.EncodeToString(sum[:]); got != st.DrawCommitment {
		wrong("the seed's SHA-256 is %s, the commitment published is %s", got, st.DrawCommitment)
	}
	if q.Commitment != "" && !strings.EqualFold(q.Commitment, st.DrawCommitment) {
		wrong("the commitment published is %s, the one noted before the draw %s", st.DrawCommitment, q.Commitment)
	}
	if a.Drawn < 0 || a.Drawn > maxPeople {
		return a, fmt.Errorf("%d people are too many to check", a.Drawn)
	}
	list, err := fetchList(ctx, base, st.Generation, a.Drawn)
	if err != nil {
		return a, err
	}
	sum = sha256.Sum256(list)
	if got := hex.EncodeToString(sum[:]); got != st.DrawListHash {
		wrong("the list's SHA-256 is %s, the one published is %s", got, st.DrawListHash)
	}
	scores := make([]uint64, len(list)/8)
	for i := range scores {
		scores[i] = binary.BigEndian.Uint64(list[8*i:])
		if scores[i] >= 1<<52 || i > 0 && scores[i] <= scores[i-1] {
			wrong("the score at place %d is out of order", i+1)
			break
		}
	}
	if q.Account == "" {
		return a, nil
	}
	id, err := strconv.ParseInt(st.Room, 10, 64)
	if err != nil {
		return a, fmt.Errorf("the room's id %q is no number", st.Room)
	}
	a.Score = room.Score([32]byte(seed), id, st.Generation, q.Account)
	for i, s := range scores {
		if s == a.Score {
			a.Place = int64(i + 1)
		}
	}
	if q.Place != 0 && a.Place != q.Place {
		if a.Place == 0 && q.Place > a.Drawn {
			return a, nil // joined late: behind the list
		}
		wrong("%s stands at place %d of the list and was told %d", q.Account, a.Place, q.Place)
	}
	return a, nil
}

func fetchList(ctx context.Context, base string, generation, people int64) ([]byte, error) {
	list := make([]byte, 0, 8*people)
	for page := 0; int64(len(list)) < 8*people; page++ {
		part, err := fetch(ctx, fmt.Sprintf("%s&list=%d&page=%d", base, generation, page), 8*room.PageScores)
		if err != nil {
			return nil, err
		}
		if len(part) == 0 || len(part)%8 != 0 {
			return nil, fmt.Errorf("page %d of the list has %d bytes", page, len(part))
		}
		list = append(list, part...)
	}
	return list, nil
}

// fetch reads an address, waiting its turn where it is told to.
func fetch(ctx context.Context, address string, most int64) ([]byte, error) {
	for try := 1; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
		_ = res.Body.Close()
		switch {
		case err != nil:
			return nil, err
		case res.StatusCode == http.StatusOK && int64(len(body)) > most:
			return nil, fmt.Errorf("%s: more than %d bytes", address, most)
		case res.StatusCode == http.StatusOK:
			return body, nil
		case res.StatusCode != http.StatusTooManyRequests || try == patience:
			return nil, fmt.Errorf("%s: %s: %.200s", address, res.Status, body)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
