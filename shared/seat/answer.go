package seat

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	"handler/function/shared/catalog"
	"handler/function/shared/problem"
)

// Answer is a map as it is sent: rendered once for each way of asking, however
// many ask.
type Answer struct {
	Body []byte // JSON
	Gzip []byte // the same compressed: 1,000 seats stay under 400 bytes
	ETag string // weak; changes with the seats, not with the moment
}

// maxAnswers bounds the ways of asking that one map keeps rendered.
const maxAnswers = 2048

type answerKey struct{ from, to, class string }

type shownMap struct {
	Sale    string       `json:"sale"`
	From    string       `json:"from"`
	To      string       `json:"to"`
	AsOf    string       `json:"as_of"`
	Stale   bool         `json:"stale"`
	Classes []shownClass `json:"classes"`
}

type shownClass struct {
	Class string `json:"class"`
	Left  int    `json:"left"`
	Seats string `json:"seats,omitempty"` // base64, two bits a seat
}

// Sales looks a sale up, from memory where it can: *catalog.Reader.
type Sales interface {
	Sale(ctx context.Context, saleID int64) (*catalog.Sale, error)
}

// Show is the map of a sale between two stops (both empty: of a sale with one
// leg), of one class or (class "") of all. Errors: not-found, invalid (from, to,
// class), unavailable.
func (ms *Maps) Show(ctx context.Context, sales Sales, saleID int64, from, to, classID string) (*Answer, error) {
	m := ms.Fresh(saleID)
	if m == nil {
		sale, err := sales.Sale(ctx, saleID)
		if err != nil {
			return nil, err
		}
		if m, err = ms.Get(ctx, sale); err != nil {
			return nil, err
		}
	}
	if m.sale.State == catalog.Draft {
		return nil, problem.New(problem.NotFound, "There is no such sale.")
	}
	key := answerKey{from, to, classID}
	if a, ok := m.shown.Load(key); ok {
		return a.(*Answer), nil
	}
	a, err := m.show(key)
	if err != nil {
		return nil, err
	}
	if m.answers.Add(1) <= maxAnswers {
		m.shown.Store(key, a)
	}
	return a, nil
}

func (m *Map) show(key answerKey) (*Answer, error) {
	f, t, err := m.sale.Interval(key.from, key.to)
	if err != nil {
		return nil, err
	}
	if t > m.legs {
		return nil, problem.Invalid("to", "must be a later stop than from")
	}
	out := shownMap{
		Sale: m.sale.IDString(), From: m.sale.From(f).ID, To: m.sale.To(t).ID,
		AsOf: m.AsOf.UTC().Format("2006-01-02T15:04:05.000Z07:00"), Stale: m.Stale, Classes: []shownClass{},
	}
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %d %t", f, t, m.Stale)
	for _, c := range m.classes {
		if key.class != "" && c.id != key.class {
			continue
		}
		seats := m.Packed(c.id, f, t)
		fmt.Fprintf(hash, " %s %d ", c.id, len(c.seats))
		_, _ = hash.Write(seats)
		out.Classes = append(out.Classes, shownClass{c.id, c.left(f, t), base64.StdEncoding.EncodeToString(seats)})
	}
	if key.class != "" && len(out.Classes) == 0 {
		return nil, problem.Invalid("class", "must be a class of this sale")
	}
	a := &Answer{ETag: `W/"` + strconv.FormatUint(hash.Sum64(), 36) + `"`}
	if a.Body, err = json.Marshal(out); err != nil {
		return nil, err
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	_, _ = w.Write(a.Body)
	_ = w.Close()
	a.Gzip = zipped.Bytes()
	return a, nil
}
