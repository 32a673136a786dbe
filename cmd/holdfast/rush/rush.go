package rush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/schollz/progressbar/v3"

	"handler/function/cmd/holdfast/wire"
	"handler/function/shared/account"
	"handler/function/shared/key"
	"handler/function/shared/ticket"
)

// Limits and times of a rush.
const (
	// connections bounds the client's connections to the platform.
	connections = 512
	// lead is how long before the opening the sale is made: everybody must be
	// ready, and scripts tap earlyTap before it.
	lead = earlyTap + 2*time.Second
	// sample is how many people are asked for their places around a disturbance.
	sample = 300
	// quiet ends a rush in which nothing is held, sold or admitted any more for
	// that long after the last hold could have ended; quietSoldOut does when the
	// room also says that nothing is left.
	quiet        = 20 * time.Second
	quietSoldOut = 4 * time.Second
)

// Platform is what is under load.
type Platform struct {
	URL string
	// PID is the process `holdfast up`; 0 when the platform is elsewhere: then
	// no CPU is counted and nothing can be killed.
	PID int
	// Keys sign the crowd's account tokens.
	Keys     key.Ring
	Audience string
	// Tickets verify the codes on tickets; nil when they are not known.
	Tickets ticket.PublicKeys
	// Redis is the address to empty it at; needed for Flush.
	Redis string
	// Promote makes the replica of Redis its master, while the old one goes on
	// serving; nil when there is no replica.
	Promote func(ctx context.Context, tell func(string, ...any)) error
}

// Options say what crowd comes to what sale. Run fills in nothing: Defaults has
// the usual numbers.
type Options struct {
	Platform Platform
	People   int
	Window   time.Duration // within which everybody arrives
	Draw     time.Duration // how long the draw is open
	Hold     time.Duration
	Seats    int
	Party    int // seats a person wants
	Legs     int // 1: a screening; more: a train, intervals at random
	Admit    int // people a second
	Unpaid   float64
	CDN      bool // one poll of the room's document a second for everybody
	Seed     uint64

	Kill    []string // phases in which all functions are killed
	Flush   []string // phases in which Redis is emptied
	Promote []string // phases in which the replica of Redis takes over

	Progress io.Writer // where the progress goes; nil: nowhere
	Terminal bool      // Progress is a terminal: a bar, else a line now and then
	Log      func(format string, args ...any)
}

// Validate names the first thing that cannot be.
func (o Options) Validate() error {
	switch {
	case o.People < 1 || o.People > 200_000:
		return errors.New("--people must be 1 to 200,000")
	case o.Seats < 1 || o.Seats > 20_000:
		return errors.New("--seats must be 1 to 20,000")
	case o.Party < 1 || o.Party > 6:
		return errors.New("--party must be 1 to 6")
	case o.Legs < 1 || o.Legs > 100:
		return errors.New("--legs must be 1 to 100")
	case o.Admit < 1 || o.Admit > 10_000:
		return errors.New("--admit must be 1 to 10,000")
	case o.Window < time.Second || o.Draw < 0 || o.Hold < time.Second:
		return errors.New("--window and --hold must be at least 1s, --draw at least 0s")
	case o.Unpaid < 0 || o.Unpaid > 1:
		return errors.New("--unpaid must be 0 to 1")
	case len(o.Kill) > 0 && o.Platform.PID == 0:
		return errors.New("--kill-functions needs a platform of the rush's own: leave out --url")
	case len(o.Flush) > 0 && o.Platform.Redis == "":
		return errors.New("--flush needs the address of Redis: leave out --url, or give --redis-url")
	case len(o.Promote) > 0 && o.Platform.Promote == nil:
		return errors.New("--promote needs a platform of the rush's own: leave out --url")
	}
	for _, list := range [][]string{o.Kill, o.Flush, o.Promote} {
		for _, p := range list {
			if p != PhaseDraw && p != PhaseWait && p != PhaseAdmit {
				return fmt.Errorf("a phase is draw, wait or admit, not %q", p)
			}
		}
	}
	return nil
}

type run struct {
	o      Options
	c      *crowd
	asking *wire.Client // asks for places beside the crowd

	kills, promotions, flushes int
	asked                      int // people, for their places
}

// Run makes a sale, lets the crowd come and judges what it got. An error means
// that the rush could not be run; what went wrong in it stands in Result.Broken.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is cheaper here than processor time
	w, err := wire.New(o.Platform.URL, connections)
	if err != nil {
		return nil, err
	}
	defer w.Close()

	opens := time.Now().Add(lead + time.Duration(o.People/10)*time.Millisecond).Truncate(time.Second).Add(time.Second)
	c := &crowd{
		w: w, judge: &judge{}, line: newLineJudge(), gateway: &gateway{w: w},
		tickets: o.Platform.Tickets, party: o.Party, seats: o.Seats, over: make(chan struct{}),
	}
	if o.CDN {
		c.cdn = &cdn{}
	}
	c.token = o.Platform.issuer("")
	if c.target, err = makeSale(ctx, w, o, opens); err != nil {
		return nil, err
	}
	if o.Legs > 1 {
		c.seats = 0 // gaps too small for anyone may stay: only quiet ends such a rush
	}
	c.m = newMeasure(opens.Add(-lead))
	c.story = &story{start: opens, opens: opens}
	asking, err := wire.New(o.Platform.URL, askersAtOnce)
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	r := &run{o: o, c: c, asking: asking}

	seed := rand.New(rand.NewPCG(o.Seed, 1))
	people := draft(seed, o.People, o.Legs, o.Window, o.Window+o.Draw+o.Hold, o.Unpaid)
	c.gather(people, seed)
	o.Log("sale %s, room %s: the line opens in %s", c.target.sale, c.target.room, time.Until(opens).Round(time.Second))

	before := o.Platform.used()
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); r.watch(watching) }()
	broken := make(chan struct{})
	go func() { defer close(broken); r.disturb(watching, o.disturbances()) }()
	c.run(ctx)
	stop()
	<-watched
	<-broken
	cpu := o.Platform.used().sub(before)
	took := time.Since(began)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.Log("everybody has gone home: asking for places, counting money")
	r.asked += r.askPlaces(ctx, 5*sample, time.Minute, "at the end")
	return r.result(ctx, cpu, took), nil
}

func (o Options) disturbances() []disturbance {
	var list []disturbance
	for _, p := range o.Flush {
		list = append(list, disturbance{p, "flush"})
	}
	for _, p := range o.Promote {
		list = append(list, disturbance{p, "promote"})
	}
	for _, p := range o.Kill {
		list = append(list, disturbance{p, "kill"})
	}
	return list
}

// issuer makes account tokens that outlive any rush.
func (p Platform) issuer(role account.Role) func(string) (string, error) {
	return func(name string) (string, error) {
		a := account.Account{ID: name, Role: role}
		if role == account.Organiser {
			a.Org = "rush"
		}
		token, _, err := account.Issue(p.Keys, p.Audience, a, time.Now(), 6*time.Hour)
		return token, err
	}
}

// makeSale puts the sale of the rush on sale, as an organiser does.
func makeSale(ctx context.Context, w *wire.Client, o Options, opens time.Time) (target, error) {
	token, err := o.Platform.issuer(account.Organiser)("rush-organiser")
	if err != nil {
		return target{}, err
	}
	doc := saleDocument(o, opens)
	body, err := json.Marshal(map[string]any{"sale": doc})
	if err != nil {
		return target{}, err
	}
	auth := []wire.Header{{Name: "Authorization", Value: "Bearer " + token}, {Name: "Idempotency-Key", Value: fmt.Sprintf("rush-sale-%d", time.Now().UnixNano())}}
	a, err := w.Do(ctx, "POST", "/function/catalog", auth, body, nil)
	if err != nil {
		return target{}, fmt.Errorf("rush: make the sale: %w", err)
	}
	if !a.OK() {
		return target{}, fmt.Errorf("rush: make the sale: %s: %s", reason(a, nil), short(a.Body))
	}
	var made struct {
		Sale string `json:"sale"`
		Room string `json:"room"`
	}
	if err := json.Unmarshal(a.Body, &made); err != nil || made.Sale == "" || made.Room == "" {
		return target{}, fmt.Errorf("rush: catalog made a sale without ids: %s", short(a.Body))
	}
	t := target{sale: made.Sale, room: made.Room, class: saleClass, opens: opens, hold: o.Hold, names: seatNames(doc)}
	for _, s := range doc.Stops {
		t.stops = append(t.stops, s.ID)
	}
	return t, nil
}

// lineEvery is how often progress is written where a bar cannot be drawn.
const lineEvery = 5 * time.Second

// watch shows the progress and ends the rush when nothing moves any more.
func (r *run) watch(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	show, end := r.progress()
	defer end()
	m := r.c.m
	var last [4]int64
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		show()
		now := [4]int64{m.joined.Load(), m.admitted.Load(), m.heldSeats.Load(), m.soldSeats.Load()}
		if now != last {
			last, moved = now, time.Now()
		}
		patience := r.o.Hold + quiet
		if r.c.story.state() == "sold_out" {
			patience = r.o.Hold + quietSoldOut
		}
		if now[0] > 0 && time.Since(moved) > patience && time.Since(r.c.target.opens) > r.o.Window+r.o.Draw {
			r.c.story.tell("nothing had moved for %s, and the rush was ended", patience)
			r.c.finish()
			return
		}
	}
}

// progress gives what shows where the rush is, and what ends the showing.
func (r *run) progress() (show, end func()) {
	m := r.c.m
	where := func() string {
		state := r.c.story.state()
		if state == "" {
			state = "before"
		}
		return fmt.Sprintf("%-9s in line %s · admitted %s · held %s · sold %s of %s seats",
			state, count(int(m.joined.Load())), count(int(m.admitted.Load())), count(int(m.heldSeats.Load())),
			count(int(m.soldSeats.Load())), count(r.o.Seats))
	}
	if r.o.Progress == nil {
		return func() {}, func() {}
	}
	if !r.o.Terminal {
		var shown time.Time
		return func() {
			if time.Since(shown) >= lineEvery {
				shown = time.Now()
				fmt.Fprintln(r.o.Progress, where())
			}
		}, func() {}
	}
	bar := progressbar.NewOptions(r.o.People,
		progressbar.OptionSetWriter(r.o.Progress), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(24), progressbar.OptionThrottle(200*time.Millisecond),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	return func() {
		bar.Describe(where())
		_ = bar.Set(int(m.done.Load()))
	}, func() { _ = bar.Finish() }
}
