package rush

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"handler/function/cmd/holdfast/wire"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The kinds of request the crowd makes, in the order of the final table.
const (
	opJoin   = "join"
	opStatus = "status"
	opPlace  = "place" // POST of join-room with a Place-Token
	opMap    = "map"
	opHold   = "hold"
	opPay    = "pay"
	opSettle = "settle" // asking whether the payment has arrived
	opTicket = "ticket"
)

var ops = []string{opJoin, opStatus, opPlace, opMap, opHold, opPay, opSettle, opTicket}

// maxSeconds bounds the second-by-second curves of the report: an hour.
const maxSeconds = 3600

// maxLatencyMS is where the latency histograms end, in milliseconds.
const maxLatencyMS = 60_000

// hist is a histogram of milliseconds, safe for many goroutines. Values are
// kept in microseconds with two digits.
type hist struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newHist() *hist { return &hist{h: hdrhistogram.New(1, maxLatencyMS*1000, 2)} }

func (h *hist) record(d time.Duration) {
	us := d.Microseconds()
	us = max(1, min(us, maxLatencyMS*1000))
	h.mu.Lock()
	h.h.RecordValue(us) //nolint:errcheck // the value is inside the bounds
	h.mu.Unlock()
}

// quantile is the q-th percentile (0 to 100) in milliseconds; 0 when empty.
func (h *hist) quantile(q float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.h.TotalCount() == 0 {
		return 0
	}
	return float64(h.h.ValueAtQuantile(q)) / 1000
}

func (h *hist) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.h.TotalCount()
}

// second is what happened within one second of the rush.
type second struct {
	requests, failed, joined, admitted, held, sold atomic.Int64
}

// measure is everything the crowd counts while it runs.
type measure struct {
	start time.Time
	all   *hist
	late  *hist
	byOp  map[string]*hist

	seconds [maxSeconds]second

	joined, firstOK, firstBad   atomic.Int64 // people
	firstBadInFault             atomic.Int64 // people whose first join met a process we had just killed
	admitted, holders           atomic.Int64 // people
	heldSeats, soldSeats        atomic.Int64 // seats
	left, refused, unpaid, done atomic.Int64 // people
	twice, twiceDiffered        atomic.Int64 // requests sent twice; answers that differed
	requests, failed, tooMany   atomic.Int64 // requests; with no answer or a 5xx; 429
	standbyFirst                atomic.Int64 // holds that were told to queue for standby
	mu                          sync.Mutex
	statuses                    map[string]int // "join 503 unavailable" → count, of answers that are not 2xx
	firstFailures               []string       // some first joins that failed, in words
}

func newMeasure(start time.Time) *measure {
	m := &measure{start: start, all: newHist(), late: newHist(), byOp: map[string]*hist{}, statuses: map[string]int{}}
	for _, op := range ops {
		m.byOp[op] = newHist()
	}
	return m
}

// at gives the second of the rush that now falls in.
func (m *measure) at() *second {
	s := int(time.Since(m.start) / time.Second)
	return &m.seconds[max(0, min(s, maxSeconds-1))]
}

// answered records one answer. An error means there was none.
func (m *measure) answered(op string, took time.Duration, a wire.Answer, err error) {
	m.requests.Add(1)
	s := m.at()
	s.requests.Add(1)
	if err == nil {
		m.all.record(took)
		m.byOp[op].record(took)
	}
	switch {
	case err != nil || a.Status >= 500:
		m.failed.Add(1)
		s.failed.Add(1)
	case a.Status == 429:
		m.tooMany.Add(1)
	}
	if err != nil || !a.OK() {
		m.note(op, a, err)
	}
}

func (m *measure) note(op string, a wire.Answer, err error) {
	what := op + " " + reason(a, err)
	m.mu.Lock()
	m.statuses[what]++
	m.mu.Unlock()
}

// refusals lists the answers that were not 2xx, the most frequent first.
func (m *measure) refusals() []Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Count, 0, len(m.statuses))
	for what, n := range m.statuses {
		list = append(list, Count{what, n})
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].N != list[j].N {
			return list[i].N > list[j].N
		}
		return list[i].What < list[j].What
	})
	return list
}

// Count is a number of times something happened.
type Count struct {
	What string `json:"what"`
	N    int    `json:"n"`
}
