package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of a replica's copies.
const (
	headOf      = withinTo        // orders of a whole queue's head
	shardHead   = 128             // of each shard: more than enough for the first 100, by far enough for 1,000
	samplesOf   = 64              // of what stands behind the head
	watchedMost = 5000            // orders behind the head asked about by one call
	watchedAll  = 100_000         // of one queue
	watchFor    = 2 * time.Minute // after somebody asked for an order last
	maxQueues   = 20_000          // copies of a replica
	readTime    = 2 * time.Second // of one read, whoever waits for it
)

// How a queue is kept, where it is not simply whole.
const (
	modeDue       = "due"
	modeSplitting = "splitting"
	modeSplit     = "split"
)

// entry is what a replica keeps of one queue.
type entry struct {
	place

	mu      sync.Mutex
	snap    *snapshot
	askedAt time.Time // when anybody asked last
	readAt  time.Time // when it was last tried to read
	flight  chan struct{}
	watched map[int64]watch
}

// watch is an order behind the head that somebody asks for.
type watch struct {
	asked   time.Time
	checked time.Time // zero: never yet
	score   int64     // 0: it does not stand there
}

// snapshot is a copy of a queue. It does not change once made.
type snapshot struct {
	at         time.Time
	known      bool
	length     int
	head       []placed // without a hole, by score
	index      map[int64]int
	parts      []part
	here, sale int // matches of the last 24 hours: of the interval and of the sale
	said       []Outcome
}

type placed struct{ number, score int64 }

// part is a whole queue, or a shard of one, by its head and samples of the rest:
// at rank[i] stands score[i].
type part struct {
	length int
	rank   []int
	score  []int64
}

// entry finds or makes what is kept of a queue.
func (l *Lines) entry(p place) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.known[p]
	if e == nil {
		if len(l.known) >= maxQueues {
			l.forget()
		}
		e = &entry{place: p, watched: map[int64]watch{}}
		l.known[p] = e
	}
	return e
}

// forget drops the copies that nobody has asked for lately, or all of them.
func (l *Lines) forget() {
	old := l.o.Clock.Now().Add(-watchFor)
	for p, e := range l.known {
		e.mu.Lock()
		idle := e.askedAt.Before(old)
		e.mu.Unlock()
		if idle {
			delete(l.known, p)
		}
	}
	if len(l.known) >= maxQueues {
		clear(l.known)
	}
}

// look gives the copy of a queue, and has one made anew when it is old. Nobody
// waits for that unless there is none, or one that is too old to be shown.
func (l *Lines) look(ctx context.Context, e *entry, number int64) *snapshot {
	now := l.o.Clock.Now()
	e.mu.Lock()
	e.askedAt = now
	if w, ok := e.watched[number]; ok || len(e.watched) < watchedAll {
		w.asked = now
		e.watched[number] = w
	}
	if e.flight == nil && now.Sub(e.readAt) >= l.o.Refresh {
		e.readAt = now
		e.flight = make(chan struct{})
		go l.fly(context.WithoutCancel(ctx), e, e.flight, now)
	}
	snap, flight := e.snap, e.flight
	e.mu.Unlock()
	fresh := snap != nil && now.Sub(snap.at) < 2*l.o.Refresh
	if fresh && snap.known {
		return snap
	}
	if flight == nil { // it could not be read a moment ago, or was not built
		return nil
	}
	select {
	case <-flight:
	case <-ctx.Done():
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if fresh || e.snap != snap {
		return e.snap
	}
	return nil
}

func (e *entry) watching(number int64) watch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watched[number]
}

// fly makes one copy for all who wait.
func (l *Lines) fly(ctx context.Context, e *entry, done chan struct{}, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	e.mu.Lock()
	last := e.snap
	ask := e.toAsk(now)
	e.mu.Unlock()
	snap, scores, err := l.read(ctx, e.place, ask, now)
	if errors.Is(err, errOtherMode) && (last == nil || now.Sub(last.at) >= 2*l.o.Refresh) {
		// It was split, or has come together, since this replica last looked.
		snap, scores, err = l.read(ctx, e.place, ask, now)
	}
	if err != nil && !errors.Is(err, errOtherMode) {
		slog.DebugContext(ctx, "standby: a queue could not be read", "sale", e.sale, "queue", e.name(), "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.snap = snap
		for i, number := range ask {
			if w, ok := e.watched[number]; ok && i < len(scores) {
				w.checked, w.score = now, scores[i]
				e.watched[number] = w
			}
		}
	}
	e.flight = nil
	close(done)
}

// toAsk chooses which orders behind the head are asked about, those first that
// were not for longest, and forgets those that nobody asks for any more. Orders
// of the last head need not be asked about: they only move forward.
func (e *entry) toAsk(now time.Time) []int64 {
	var ask []int64
	for number, w := range e.watched {
		if now.Sub(w.asked) > watchFor {
			delete(e.watched, number)
			continue
		}
		if e.snap != nil {
			if i, ok := e.snap.index[number]; ok && i < withinTo/2 {
				continue
			}
		}
		ask = append(ask, number)
	}
	if len(ask) > watchedMost {
		slices.SortFunc(ask, func(a, b int64) int { return e.watched[a].checked.Compare(e.watched[b].checked) })
		ask = ask[:watchedMost]
	}
	return ask
}

// errOtherMode: the queue is kept in another way than this replica remembered.
// It remembers the right one now.
var errOtherMode = errors.New("line: the queue is kept in another way")

// read makes a copy of a queue with one call to Redis. scores are those of the
// orders asked about, 0 for one that does not stand there.
func (l *Lines) read(ctx context.Context, p place, ask []int64, now time.Time) (snap *snapshot, scores []int64, err error) {
	var (
		split  = l.isSplit(p)
		whole  *redis.Cmd
		shards [Shards]*redis.Cmd
		of     [Shards][]int64 // of ask
		rates  *redis.SliceCmd
		said   *redis.StringSliceCmd
	)
	for _, number := range ask {
		of[shardOf(number)] = append(of[shardOf(number)], number)
	}
	err = l.o.Redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		pipe := rdb.Pipeline()
		set, _ := setKeys(p.sale, p.Queue)
		args := lookArgs(p.Queue, headOf, samplesOf, ask)
		if split {
			args = lookArgs(p.Queue, 0, 0, nil) // the mode alone
			for k := range shards {
				set, _, built := shardKeys(p.sale, p.Queue, k)
				shards[k] = pipe.Eval(ctx, lookLua, []string{set, built}, lookArgs(p.Queue, shardHead, samplesOf/4, of[k])...)
			}
		}
		whole = pipe.Eval(ctx, lookLua, []string{set, builtKey(p.sale), modesKey(p.sale)}, args...)
		rates = pipe.HMGet(ctx, ratesKey(p.sale), p.name(), rateOfSale)
		said = pipe.LRange(ctx, saidKey(p.sale, p.Class), 0, outcomesKept-1)
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	first, err := readPart(whole)
	if err != nil {
		return nil, nil, err
	}
	if is := first.mode == modeSplit; is != split {
		l.remember(p, is)
		return nil, nil, errOtherMode
	}
	snap = &snapshot{at: now, known: first.built, said: heard(said.Val())}
	snap.here, snap.sale = count(rates.Val(), 0), count(rates.Val(), 1)
	if !split {
		snap.fill([]looked{first})
		return snap, first.scores, nil
	}
	parts := make([]looked, Shards)
	by := make(map[int64]int64, len(ask))
	for k, cmd := range shards {
		if parts[k], err = readPart(cmd); err != nil {
			return nil, nil, err
		}
		snap.known = snap.known && parts[k].built
		for i, number := range of[k] {
			if i < len(parts[k].scores) {
				by[number] = parts[k].scores[i]
			}
		}
	}
	for _, number := range ask {
		scores = append(scores, by[number])
	}
	snap.fill(parts)
	return snap, scores, nil
}

func lookArgs(q Queue, head, samples int, numbers []int64) []any {
	args := make([]any, 0, 3+len(numbers))
	args = append(args, q.name(), head, samples)
	for _, n := range numbers {
		args = append(args, n)
	}
	return args
}

func count(values []any, i int) int {
	if i >= len(values) {
		return 0
	}
	s, _ := values[i].(string)
	n, _ := strconv.Atoi(s)
	return n
}

// looked is what look.lua said.
type looked struct {
	mode   string
	built  bool
	part   part
	head   []placed
	scores []int64
}

func readPart(cmd *redis.Cmd) (looked, error) {
	var p looked
	reply, err := cmd.Slice()
	if err != nil {
		return p, err
	}
	if len(reply) != 6 {
		return p, fmt.Errorf("line: look answered %d values", len(reply))
	}
	p.mode, _ = reply[0].(string)
	built, _ := reply[1].(string)
	p.built = built != ""
	n, _ := reply[2].(int64)
	p.part.length = int(n)
	head, err := texts(reply[3])
	if err != nil {
		return p, err
	}
	for i := 0; i+1 < len(head); i += 2 {
		number, err := strconv.ParseInt(head[i], 10, 64)
		if err != nil {
			continue // nothing that we put there
		}
		score, err := toScore(head[i+1])
		if err != nil {
			return p, err
		}
		p.part.rank, p.part.score = append(p.part.rank, len(p.head)), append(p.part.score, score)
		p.head = append(p.head, placed{number, score})
	}
	samples, _ := reply[4].([]any)
	for i := 0; i+1 < len(samples); i += 2 {
		rank, _ := samples[i].(int64)
		text, _ := samples[i+1].(string)
		score, err := toScore(text)
		if err != nil {
			return p, err
		}
		p.part.rank, p.part.score = append(p.part.rank, int(rank)), append(p.part.score, score)
	}
	scores, err := texts(reply[5])
	if err != nil {
		return p, err
	}
	for _, text := range scores {
		score := int64(0)
		if text != "" {
			if score, err = toScore(text); err != nil {
				return p, err
			}
		}
		p.scores = append(p.scores, score)
	}
	return p, nil
}

func texts(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("line: look answered %T for a list", v)
	}
	out := make([]string, len(list))
	for i, one := range list {
		if out[i], ok = one.(string); !ok {
			return nil, fmt.Errorf("line: look answered %T in a list", one)
		}
	}
	return out, nil
}

// fill merges the parts. The head ends where the first shard has more than it
// showed: behind that a place between is not known.
func (s *snapshot) fill(parts []looked) {
	limit := int64(-1)
	for _, p := range parts {
		s.length += p.part.length
		s.head = append(s.head, p.head...)
		s.parts = append(s.parts, p.part)
		if n := len(p.head); n > 0 && n < p.part.length && (limit < 0 || p.head[n-1].score < limit) {
			limit = p.head[n-1].score
		}
	}
	slices.SortFunc(s.head, func(a, b placed) int { return cmp.Compare(a.score, b.score) })
	if limit >= 0 {
		s.head = s.head[:sort.Search(len(s.head), func(i int) bool { return s.head[i].score > limit })]
	}
	s.head = s.head[:min(len(s.head), withinTo)]
	s.index = make(map[int64]int, len(s.head))
	for i, p := range s.head {
		s.index[p.number] = i
	}
}

// rank estimates how many stand before a score, from the samples.
func (s *snapshot) rank(score int64) int {
	n := 0.0
	for _, p := range s.parts {
		n += p.before(score)
	}
	return max(int(n), len(s.head))
}

// before estimates how many of a part stand before a score.
func (p part) before(score int64) float64 {
	i := sort.Search(len(p.score), func(i int) bool { return p.score[i] >= score })
	switch {
	case len(p.score) == 0 || i == 0:
		return 0
	case i == len(p.score):
		return float64(p.length)
	}
	gap := float64(p.score[i] - p.score[i-1])
	return float64(p.rank[i-1]) + float64(p.rank[i]-p.rank[i-1])*float64(score-p.score[i-1])/gap
}
