package rush

import (
	"fmt"
	"sort"
	"sync"
)

// ticketed is one seat of a customer's ticket: what the customer was given,
// read from the ticket function's answer and not from any table of ours.
type ticketed struct {
	account  string
	booking  string
	seat     string
	from, to int // stop indexes, [from, to)
}

// judge counts what was sold from the customers' tickets alone.
type judge struct {
	mu      sync.Mutex
	tickets []ticketed
}

func (j *judge) add(t ...ticketed) {
	j.mu.Lock()
	j.tickets = append(j.tickets, t...)
	j.mu.Unlock()
}

// verdict counts seats sold, and legs of a seat that more than one customer
// has a ticket for (each surplus ticket counts one a leg). clashes says which.
func (j *judge) verdict() (sold, oversold int, clashes []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	type leg struct {
		seat string
		leg  int
	}
	owner := make(map[leg]ticketed, len(j.tickets))
	for _, t := range j.tickets {
		sold++
		for l := t.from; l < t.to; l++ {
			k := leg{t.seat, l}
			if first, taken := owner[k]; taken {
				oversold++
				clashes = append(clashes, fmt.Sprintf("seat %s, leg %d: %s (%s) and %s (%s)",
					t.seat, l+1, first.booking, first.account, t.booking, t.account))
				continue
			}
			owner[k] = t
		}
	}
	sort.Strings(clashes)
	return sold, oversold, clashes
}

// bookings lists the bookings that have a ticket.
func (j *judge) bookings() map[string]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := make(map[string]bool)
	for _, t := range j.tickets {
		m[t.booking] = true
	}
	return m
}

// lineJudge remembers every place ever told to anyone. A place that changes
// without the person asking to join again, or that two people were told, is a
// broken promise.
type lineJudge struct {
	mu      sync.Mutex
	now     map[string]int64 // account → its place
	turn    map[string]int   // account → times it asked for a new place
	owner   map[int64]string // place → who was told it first
	changed []string
	twice   []string
}

func newLineJudge() *lineJudge {
	return &lineJudge{now: map[string]int64{}, turn: map[string]int{}, owner: map[int64]string{}}
}

// told records that the account was told its place.
func (l *lineJudge) told(account string, place int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compare(account, place)
	l.now[account] = place
}

// toldAgain records what somebody was told who asks beside the person (another
// tab of the browser). turn is what l.asking gave before the question: if the
// person has asked for a new place since, either place is right.
func (l *lineJudge) toldAgain(account string, place int64, turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn[account] == turn {
		l.compare(account, place)
	}
}

func (l *lineJudge) compare(account string, place int64) {
	if was, ok := l.now[account]; ok && was != place {
		l.changed = append(l.changed, fmt.Sprintf("%s had place %d and was told %d", account, was, place))
	}
	if who, ok := l.owner[place]; ok && who != account {
		l.twice = append(l.twice, fmt.Sprintf("place %d was told to %s and to %s", place, who, account))
		return
	}
	l.owner[place] = account
}

// left forgets the account's place, because it asks for a new one at the tail.
// The old place stays taken: it must not be given to another.
func (l *lineJudge) left(account string) {
	l.mu.Lock()
	delete(l.now, account)
	l.turn[account]++
	l.mu.Unlock()
}

// asking gives the account's turn, and whether its place is known.
func (l *lineJudge) asking(account string) (turn int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known = l.now[account]
	return l.turn[account], known
}

// verdict gives how many places are known, and the broken promises.
func (l *lineJudge) verdict() (known int, changed, twice []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owner), append([]string(nil), l.changed...), append([]string(nil), l.twice...)
}
