package room

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/queue"
)

var (
	//go:embed identity.lua
	identityLua string
	//go:embed join.lua
	joinLua string
	//go:embed block.lua
	blockLua string
	//go:embed peek.lua
	peekLua string
	//go:embed whole.lua
	wholeLua string

	joinScript  = redis.NewScript(identityLua + joinLua)
	blockScript = redis.NewScript(identityLua + blockLua)
	peekScript  = redis.NewScript(identityLua + peekLua)
	wholeScript = redis.NewScript(identityLua + wholeLua)
)

// What the join script answered for one person (join.lua).
const (
	drawnNow     = 1
	drawnBefore  = 2
	lateNow      = 3
	lateBefore   = 4
	inList       = 5
	noNumber     = 6
	blockIsEmpty = 7
)

// The phases of the line, kept in its meta key.
const (
	phaseOpen   = "open"   // the draw takes joins
	phaseClosed = "closed" // it does not, the list is not stored yet
	phaseListed = "listed" // the list is stored, late numbers are given
)

// line is a room's generation in Redis.
type line struct {
	client           *queue.Client
	room, generation int64
}

func (l line) key(name string) string {
	return queue.Key(queue.RoomTag(l.room), "g"+strconv.FormatInt(l.generation, 10), name)
}

func (l line) meta() string { return queue.Key(queue.RoomTag(l.room), "meta") }

func (l line) keys() []string {
	return []string{l.meta(), l.key("draw"), l.key("late"), l.key("block"), l.key("whole")}
}

// person is one join on its way to the script.
type person struct {
	generation int64
	account    string
	score      uint64
	want       string // join.lua
}

// taken is the script's answer for one person.
type taken struct {
	code     int
	late     int64
	identity string // of the Redis that gave a number
	reset    bool
	lost     bool // neither Redis nor the stream took it
}

// join runs the script once for all people.
func (l line) join(ctx context.Context, knowsList bool, people []person) ([]taken, error) {
	argv := make([]any, 0, 2+3*len(people))
	argv = append(argv, l.generation, flag(knowsList))
	for _, p := range people {
		argv = append(argv, p.account, p.score, p.want)
	}
	var reply []any
	err := l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		reply, err = joinScript.Run(ctx, rdb, l.keys(), argv...).Slice()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]taken, len(people))
	word, _ := reply[0].(string)
	identity, _ := reply[1].(string)
	if word != "reset" && len(reply) != 2+2*len(people) {
		return nil, fmt.Errorf("room: the join script answered %d of %d people", (len(reply)-2)/2, len(people))
	}
	for i := range out {
		if word == "reset" {
			out[i].reset = true
			continue
		}
		code, _ := reply[2+2*i].(int64)
		late, _ := reply[3+2*i].(int64)
		out[i] = taken{code: int(code), late: late, identity: identity}
	}
	return out, nil
}

// peeked is what the tick sees of Redis.
type peeked struct {
	identity   string
	generation string
	phase      string
	whole      string
	block      string // identity the block of late numbers belongs to
	next       int64
	numbers    int64 // late numbers it can still give
	drawn      int64 // people in the draw
	listBytes  int64
}

func (l line) peek(ctx context.Context) (peeked, error) {
	var p peeked
	err := l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		r, err := peekScript.Run(ctx, rdb, append(l.keys(), l.key("list"))).Slice()
		if err != nil {
			return err
		}
		if len(r) != 9 {
			return errors.New("room: the peek script's answer")
		}
		text := func(i int) string { s, _ := r[i].(string); return s }
		number := func(i int) int64 { n, _ := r[i].(int64); return n }
		p = peeked{identity: text(0), generation: text(1), phase: text(2), whole: text(3), block: text(4),
			next: number(5), numbers: number(6), drawn: number(7), listBytes: number(8)}
		return nil
	})
	return p, err
}

// given is the highest late number that this Redis has given; known is false when
// it cannot say.
func (p peeked) given() (last int64, known bool) {
	if p.identity == "" || p.block != p.identity {
		return 0, false
	}
	return p.next - 1, true
}

// setPhase writes the meta key. A phase never goes back within a generation:
// only the tick that holds the room's lease calls this, from the stored row.
func (l line) setPhase(ctx context.Context, phase string) error {
	return l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.HSet(ctx, l.meta(), "generation", l.generation, "phase", phase).Err()
	})
}

// people reads everyone whom the draw of this Redis took, a page at a time.
func (l line) people(ctx context.Context) (accounts []string, err error) {
	const page = 10_000
	for from := int64(0); ; from += page {
		var part []string
		err = l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
			part, err = rdb.ZRange(ctx, l.key("draw"), from, from+page-1).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, part...)
		if len(part) < page {
			return accounts, nil
		}
	}
}

// keepList puts the stored list where every replica finds it, and lets the draw
// go: the list stands in Postgres and the joins in the stream.
func (l line) keepList(ctx context.Context, list *List) error {
	return l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, l.key("list"), list.bytes(), 0)
			p.HSet(ctx, l.meta(), "generation", l.generation, "phase", phaseListed)
			p.Expire(ctx, l.key("draw"), time.Hour)
			return nil
		})
		return err
	})
}

func (l line) list(ctx context.Context) (*List, error) {
	var b []byte
	err := l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		b, err = rdb.Get(ctx, l.key("list")).Bytes()
		return err
	})
	if err != nil {
		return nil, err
	}
	return readList(b)
}

// bringBlock hands a reserved block to the Redis it was reserved for.
func (l line) bringBlock(ctx context.Context, identity string, first, last int64) (bool, error) {
	var took int
	err := l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) (err error) {
		took, err = blockScript.Run(ctx, rdb, []string{l.key("block")}, identity, first, last).Int()
		return err
	})
	return took == 1, err
}

// giveBack writes numbers read from the stream into the late map.
func (l line) giveBack(ctx context.Context, numbers map[string]int64) error {
	const page = 1_000
	part := make([]any, 0, 2*page)
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		err := l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
			return rdb.HSet(ctx, l.key("late"), part...).Err()
		})
		part = part[:0]
		return err
	}
	for account, k := range numbers {
		if part = append(part, account, k); len(part) == 2*page {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// setWhole says that the late map of this Redis is complete.
func (l line) setWhole(ctx context.Context, identity string) error {
	return l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return wholeScript.Run(ctx, rdb, []string{l.key("whole")}, identity).Err()
	})
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// A status and the sales that a hold found sold out since it was written.

func (l line) statusKey() string { return queue.Key(queue.RoomTag(l.room), "status") }

func (l line) goneKey() string { return queue.Key(queue.RoomTag(l.room), "gone") }

// goneFor is how long a hold's word that a sale is sold out counts: the next
// count, a second later, knows it itself.
const goneFor = 3 * time.Second

// publish writes the status document. A closed room's last one is kept a day; it
// stands in Postgres too.
func (l line) publish(ctx context.Context, doc []byte, closed bool) error {
	keep := time.Duration(0)
	if closed {
		keep = 24 * time.Hour
	}
	return l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.Set(ctx, l.statusKey(), doc, keep).Err()
	})
}

// status reads the document and the sales said to be gone, in one call. An empty
// document means that there is none.
func (l line) status(ctx context.Context) (doc []byte, gone string, err error) {
	err = l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		v, err := rdb.MGet(ctx, l.statusKey(), l.goneKey()).Result()
		if err != nil {
			return err
		}
		text, _ := v[0].(string)
		doc = []byte(text)
		gone, _ = v[1].(string)
		return nil
	})
	return doc, gone, err
}

// sayGone notes that a hold took the last of a sale.
func (l line) sayGone(ctx context.Context, sale int64) error {
	return l.client.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Append(ctx, l.goneKey(), ","+strconv.FormatInt(sale, 10)+",")
			p.Expire(ctx, l.goneKey(), goneFor)
			return nil
		})
		return err
	})
}
