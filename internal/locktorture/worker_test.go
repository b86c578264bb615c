package locktorture_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/lock"
)

// workerEnv is the environment variable that makes the test program a worker: a process that locks and logs what it
// sees. Its value is the orders in JSON.
const workerEnv = "LOCKWIRE_LOCK_WORKER"

// orders say what a worker process is to do.
type orders struct {
	Process    int
	Kind       string // of the locks: one of the trades; "" is reentrant
	Network    string
	Addr       string
	Protocol   int
	Lease      time.Duration // of the client
	Seed       uint64
	Names      []string
	Goroutines int // that lock at random until the input ends; 0 to do what the input says
	// Careless workers rely on a lock until they release it, whatever they are told and however long its lease was. What else
	// they do wrong is in the trades.
	Careless bool
}

func (o orders) env() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return workerEnv + "=" + string(text)
}

// worker is the inside of a worker process.
type worker struct {
	orders
	trade *trade
	round atomic.Int64 // of a trade that has rounds
	log   *locktorture.Log
	locks *lock.Client
	wg    sync.WaitGroup
}

// work is the main function of a worker process.
func work(text string) int {
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if w.Kind == "" {
		w.Kind = "reentrant"
	}
	w.trade = tradeOf(w.Kind)
	w.log = locktorture.NewLog(os.Stdout, w.Process)
	before := locktorture.CountResources()
	if err := w.run(); err != nil {
		w.fail("%v", err)
		return 1
	}
	if left, ok := locktorture.ResourcesBack(before); !ok {
		w.fail("at the end %+v, at the start %+v", left, before)
		return 1
	}
	return 0
}

func (w *worker) fail(format string, args ...any) {
	w.log.Add(locktorture.Event{Kind: locktorture.Failed, Text: fmt.Sprintf(format, args...)})
}

func (w *worker) run() error {
	pool, err := w.open()
	if err != nil {
		return err
	}
	cfg := w.trade.config
	cfg.Lease = w.Lease
	if w.locks, err = lock.New(pool, cfg); err != nil {
		return err
	}
	w.log.Add(locktorture.Event{Kind: locktorture.Note, Text: "ready"})
	if w.Goroutines > 0 {
		w.torture()
	} else {
		w.obey()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(w.locks.CloseContext(ctx), pool.Close()) // nothing may be lost by an end in order
}

// open connects, however often it takes: there may be faults from the start.
func (w *worker) open() (*conn.Pool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limit := min(w.Lease, 5*time.Second)
	cfg := conn.Config{
		Network: w.Network, Addr: w.Addr, Protocol: w.Protocol, ClientName: fmt.Sprintf("worker-%d", w.Process),
		DialTimeout: limit, Timeout: limit, PingInterval: limit,
	}
	for {
		pool, err := conn.Open(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return pool, err
		}
	}
}

// torture locks at random in many goroutines until the input ends, and then once more in each.
func (w *worker) torture() {
	ctx, cancel := context.WithCancel(context.Background())
	for g := range w.Goroutines {
		w.wg.Go(func() {
			rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Process)<<32|uint64(g)))
			for ctx.Err() == nil {
				w.trade.turn(w, ctx, rng)
			}
			if w.trade.once != nil {
				w.trade.once(w, rng)
			}
		})
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
	}
	cancel()
	w.wg.Wait()
}

// obey does what the input says until it ends: "lock NAME" takes a lock and keeps it, "unlock NAME" gives it back.
func (w *worker) obey() {
	held := map[string]context.CancelFunc{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, name, _ := strings.Cut(lines.Text(), " ")
		if verb == "unlock" {
			held[name]()
			continue
		}
		var end context.Context
		end, held[name] = context.WithCancel(context.Background())
		w.wg.Go(func() {
			ctx, cancel := context.WithTimeout(end, patience)
			defer cancel()
			if g, err := w.take(ctx, ask{name: name}); err == nil {
				w.hold(end, g)
				w.give(g)
			}
		})
	}
	for _, end := range held {
		end()
	}
	w.wg.Wait()
}

// upTo is a random duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// ask is what a worker asks for.
type ask struct {
	name, mode string
	permits    int
	try        bool // and do not wait
	further    bool // a further hold of its owner
	owner      lock.Owner
	term       time.Duration // of a fixed lease; 0 for one that is renewed
}

func (a ask) options() []lock.Option {
	var opts []lock.Option
	if a.owner != (lock.Owner{}) {
		opts = append(opts, lock.As(a.owner))
	}
	if a.term > 0 {
		opts = append(opts, lock.For(a.term))
	}
	return opts
}

// grant is what a worker has got.
type grant struct {
	lease    *lock.Lease
	acquired locktorture.Event
}

// turn is one lock at random, or the attempt.
func (w *worker) turn(ctx context.Context, rng *rand.Rand) {
	a := ask{name: w.Names[rng.IntN(len(w.Names))], mode: w.mode(rng, 2, 3), try: rng.IntN(4) == 0}
	rules := w.trade.rules
	if rules.Permits {
		a.permits = 1 + rng.IntN(mostPermits)
	}
	if !w.Careless && rng.IntN(2) == 0 {
		a.term = w.Lease/2 + upTo(rng, w.Lease)
	}
	reentrant := !rules.Permits && rng.IntN(6) == 0
	if reentrant || rules.Queue {
		a.owner = w.locks.NewOwner()
	}
	wait, cancel := context.WithTimeout(ctx, w.Lease/8+upTo(rng, 4*w.Lease+w.trade.dead/4))
	defer cancel()
	g, err := w.take(wait, a)
	if err != nil {
		locktorture.Pause(ctx, upTo(rng, 10*time.Millisecond))
		return
	}
	end, cancel := context.WithTimeout(ctx, w.holdFor(rng))
	defer cancel()
	if !reentrant {
		w.hold(end, g)
		w.giveSomehow(ctx, rng, g)
		return
	}
	inner := ask{name: a.name, mode: w.mode(rng, 1, 2), owner: a.owner, further: true}
	var wg sync.WaitGroup
	wg.Go(func() {
		if further, err := w.take(end, inner); err == nil {
			w.hold(end, further)
			w.give(further)
		}
	})
	w.hold(end, g)
	w.giveSomehow(ctx, rng, g)
	wg.Wait()
}

// mode is Read for so many of so many holds of a lock that has readers.
func (w *worker) mode(rng *rand.Rand, n, of int) string {
	if w.trade.rules.Readers && rng.IntN(of) < n {
		return locktorture.Read
	}
	return ""
}

// holdFor is how long to hold something: most often not for long, sometimes for longer than the lease.
func (w *worker) holdFor(rng *rand.Rand) time.Duration {
	switch rng.IntN(20) {
	case 0:
		return w.Lease + upTo(rng, w.Lease)
	case 1:
		return upTo(rng, w.Lease/2)
	}
	return upTo(rng, 5*time.Millisecond)
}

// onceMore shows that locks can be had: with the faults over it is a matter of the lease of those who died.
func (w *worker) onceMore(rng *rand.Rand) {
	a := ask{name: w.Names[rng.IntN(len(w.Names))], mode: w.mode(rng, 1, 2)}
	if w.trade.rules.Permits {
		a.permits = 1
	}
	if w.trade.rules.Queue {
		a.owner = w.locks.NewOwner()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.Lease+w.trade.limit())
	defer cancel()
	asked := locktorture.Now()
	g, err := w.take(ctx, a)
	for err != nil && ctx.Err() == nil { // a connection that the last fault cut fails a call yet
		g, err = w.take(ctx, a)
	}
	if err != nil {
		w.fail("%q could not be had within %v after the faults: %v", a.name, locktorture.Now()-asked, err)
		return
	}
	w.log.Add(locktorture.Event{Kind: locktorture.Note, Text: "once more", Until: g.acquired.At - asked})
	cancel()
	w.hold(ctx, g)
	w.give(g)
}

// take asks for a lock and logs the answer. What it returns is relied on from now on.
func (w *worker) take(ctx context.Context, a ask) (grant, error) {
	e := locktorture.Event{
		Kind: locktorture.Asked, Hold: w.log.NextHold(), Name: a.name, Mode: a.mode, Owner: a.owner.String(), Permits: a.permits,
	}
	if deadline, ok := ctx.Deadline(); ok {
		e.Until = locktorture.At(deadline)
	}
	w.log.Add(e)
	l := w.trade.locker(w, a)
	get := l.Lock
	if a.try {
		get = l.TryLock
	}
	lease, err := get(ctx, a.options()...)
	e.At, e.Until = locktorture.Now(), 0
	if err != nil {
		e.Kind, e.Text = locktorture.Refused, err.Error()
		w.log.Add(e)
		return grant{}, err
	}
	e.Kind, e.Owner, e.Token = locktorture.Acquired, lease.Owner(), lease.Token()
	return grant{lease, e}, nil
}

// hold relies on a lease until end is over or the lock is lost.
func (w *worker) hold(end context.Context, g grant) {
	e := g.acquired
	e.Until = w.until(g.lease)
	w.log.Add(e)
	protected, cancel := g.lease.Context(context.Background())
	defer cancel()
	if w.Careless {
		protected = context.Background()
	}
	tick := time.NewTicker(w.Lease / 20)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-end.Done():
			over = true
		case <-protected.Done():
			over = true
		case <-tick.C:
			if until := w.until(g.lease); until > e.Until+time.Millisecond {
				e.At, e.Kind, e.Until = 0, locktorture.Extended, until
				w.log.Add(e)
			}
		}
		w.judge(g.lease)
	}
}

// until is when the lease ends by the clock of the machine.
func (w *worker) until(lease *lock.Lease) time.Duration {
	if w.Careless {
		return 0
	}
	return locktorture.At(lease.ValidUntil())
}

// judge complains of a lease that says it is held when it is over.
func (w *worker) judge(lease *lock.Lease) {
	at := locktorture.Now()
	err := lease.Err()
	// ValidUntil never goes back, so what it is now it was at most then.
	if until := locktorture.At(lease.ValidUntil()); err == nil && at > until+time.Millisecond {
		w.fail("Err was nil %v after ValidUntil", at-until)
	}
}

// releasing logs what has become of a hold that is about to be released, and returns its last event.
func (w *worker) releasing(g grant) locktorture.Event {
	e := g.acquired
	e.At, e.Until = 0, w.until(g.lease)
	if err := g.lease.Err(); err != nil && !w.Careless {
		e.Kind, e.Text = locktorture.Lost, err.Error()
		if !errors.Is(err, lock.ErrLost) {
			w.fail("Err before Unlock: %v", err)
		}
		w.log.Add(e)
	}
	e.At, e.Kind, e.Text = locktorture.Now(), locktorture.Releasing, ""
	w.log.Add(e)
	return e
}

// giveSomehow releases a hold under a context that is over, or not, or turns it into one of a reader first.
func (w *worker) giveSomehow(ctx context.Context, rng *rand.Rand, g grant) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	switch {
	case w.trade.rules.Readers && g.acquired.Mode == "" && rng.IntN(3) == 0:
		if reader, err := w.downgrade(g); err == nil {
			end, cancel := context.WithTimeout(ctx, w.holdFor(rng))
			defer cancel()
			w.hold(end, reader)
			w.give(reader)
		}
	case rng.IntN(4) == 0:
		w.unlock(cancelled, g)
	default:
		w.give(g)
	}
}

// give releases a hold.
func (w *worker) give(g grant) { w.unlock(context.Background(), g) }

func (w *worker) unlock(ctx context.Context, g grant) {
	e := w.releasing(g)
	w.released(e, g.lease.Unlock(ctx))
}

// released logs the outcome of a release.
func (w *worker) released(e locktorture.Event, err error) {
	e.At, e.Kind = 0, locktorture.Released
	switch {
	case err == nil:
		e.Text = locktorture.Freed
	case errors.Is(err, lock.ErrNotHeld):
		e.Text = locktorture.NotHeld
	case errors.Is(err, lock.ErrUncertain):
		e.Text = "uncertain: " + err.Error()
	default:
		w.fail("release: %v", err)
	}
	w.log.Add(e)
}

// downgrade turns the hold of a writer into one of a reader, which begins where the other ends: nobody can have written in
// between.
func (w *worker) downgrade(g grant) (grant, error) {
	e := w.releasing(g)
	ctx, cancel := context.WithTimeout(context.Background(), w.Lease)
	defer cancel()
	lease, err := g.lease.Downgrade(ctx)
	if err != nil {
		// What is wrong with the hold is what Unlock says, too; a Downgrade that was not sent has to be followed by it.
		w.released(e, g.lease.Unlock(context.Background()))
		return grant{}, err
	}
	e.Hold, e.Kind, e.Mode, e.Owner = w.log.NextHold(), locktorture.Acquired, locktorture.Read, lease.Owner()
	return grant{lease, e}, nil
}
