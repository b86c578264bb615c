package lock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
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
	Network    string
	Addr       string
	Protocol   int
	Lease      time.Duration // of the client
	Seed       uint64
	Names      []string
	Goroutines int // that lock at random until the input ends; 0 to do what the input says
	// Careless workers rely on a lock until they release it, whatever they are told and however long its lease was.
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
	w.log = locktorture.NewLog(os.Stdout, w.Process)
	before := countResources()
	if err := w.run(); err != nil {
		w.fail("%v", err)
		return 1
	}
	if left, ok := resourcesBack(before); !ok {
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
	if w.locks, err = lock.New(pool, lock.Config{Lease: w.Lease}); err != nil {
		return err
	}
	w.log.Add(locktorture.Event{Kind: locktorture.Note, Text: "ready"})
	if w.Goroutines > 0 {
		w.torture()
	} else {
		w.obey()
	}
	return errors.Join(w.locks.Close(), pool.Close())
}

// open connects, however often it takes: there may be faults from the start.
func (w *worker) open() (*conn.Pool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
				w.turn(ctx, rng)
			}
			w.once(rng)
		})
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
	}
	cancel()
	w.wg.Wait()
}

// turn is one lock at random, or the attempt.
func (w *worker) turn(ctx context.Context, rng *rand.Rand) {
	name := w.Names[rng.IntN(len(w.Names))]
	var opts []lock.Option
	var owner lock.Owner
	if !w.Careless && rng.IntN(2) == 0 {
		opts = append(opts, lock.For(w.Lease/2+upTo(rng, w.Lease)))
	}
	reentrant := rng.IntN(6) == 0
	if reentrant {
		owner = w.locks.NewOwner()
		opts = append(opts, lock.As(owner))
	}
	wait, cancel := context.WithTimeout(ctx, w.Lease/8+upTo(rng, 4*w.Lease))
	defer cancel()
	lease, from, err := w.take(wait, name, rng.IntN(4) == 0, opts...)
	if err != nil {
		pause(ctx, upTo(rng, 10*time.Millisecond))
		return
	}
	length := upTo(rng, 5*time.Millisecond)
	switch rng.IntN(20) {
	case 0:
		length = w.Lease + upTo(rng, w.Lease)
	case 1:
		length = upTo(rng, w.Lease/2)
	}
	end, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	if !reentrant {
		w.hold(end, lease, name, from, rng.IntN(4) == 0)
		return
	}
	var inner sync.WaitGroup
	inner.Go(func() {
		if further, from, err := w.take(end, name, false, lock.As(owner)); err == nil {
			w.hold(end, further, name, from, false)
		}
	})
	w.hold(end, lease, name, from, false)
	inner.Wait()
}

// once shows that locks can be had: with the faults over it is a matter of the lease of those who died.
func (w *worker) once(rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.Lease+10*time.Second)
	defer cancel()
	name := w.Names[rng.IntN(len(w.Names))]
	asked := locktorture.Now()
	lease, from, err := w.take(ctx, name, false)
	if err != nil {
		w.fail("%q could not be had within %v after the faults: %v", name, locktorture.Now()-asked, err)
		return
	}
	w.log.Add(locktorture.Event{Kind: locktorture.Note, Text: "once more", Until: from - asked})
	cancel()
	w.hold(ctx, lease, name, from, false)
}

// take asks for a lock and logs the answer. It returns the lease and since when it is relied on.
func (w *worker) take(ctx context.Context, name string, try bool, opts ...lock.Option) (*lock.Lease, time.Duration, error) {
	w.log.Add(locktorture.Event{Kind: locktorture.Asked, Name: name})
	l := w.locks.Reentrant(name)
	ask := l.Lock
	if try {
		ask = l.TryLock
	}
	lease, err := ask(ctx, opts...)
	from := locktorture.Now()
	if err != nil {
		w.log.Add(locktorture.Event{Kind: locktorture.Refused, Name: name, Text: err.Error()})
		return nil, 0, err
	}
	return lease, from, nil
}

// hold relies on a lease until end is over or the lock is lost, and releases it.
func (w *worker) hold(end context.Context, lease *lock.Lease, name string, from time.Duration, cancelled bool) {
	e := locktorture.Event{
		At: from, Kind: locktorture.Acquired, Hold: w.log.NextHold(), Name: name, Owner: lease.Owner(), Until: w.until(lease),
	}
	w.log.Add(e)
	protected, cancel := lease.Context(context.Background())
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
			if until := w.until(lease); until > e.Until+time.Millisecond {
				e.At, e.Kind, e.Until = 0, locktorture.Extended, until
				w.log.Add(e)
			}
		}
		w.judge(lease)
	}
	w.give(e, lease, cancelled)
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

// give logs what became of the hold and releases it.
func (w *worker) give(e locktorture.Event, lease *lock.Lease, cancelled bool) {
	e.At, e.Until = 0, w.until(lease)
	if err := lease.Err(); err != nil && !w.Careless {
		e.Kind, e.Text = locktorture.Lost, err.Error()
		if !errors.Is(err, lock.ErrLost) {
			w.fail("Err before Unlock: %v", err)
		}
		w.log.Add(e)
	}
	e.Kind, e.Text = locktorture.Releasing, ""
	w.log.Add(e)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if cancelled {
		cancel()
	}
	err := lease.Unlock(ctx)
	e.At, e.Kind = 0, locktorture.Released
	switch {
	case err == nil:
		e.Text = locktorture.Freed
	case errors.Is(err, lock.ErrNotHeld):
		e.Text = locktorture.NotHeld
	case errors.Is(err, lock.ErrUncertain):
		e.Text = "uncertain: " + err.Error()
	default:
		w.fail("Unlock: %v", err)
	}
	w.log.Add(e)
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
			ctx, cancel := context.WithTimeout(end, time.Minute)
			defer cancel()
			if lease, from, err := w.take(ctx, name, false); err == nil {
				w.hold(end, lease, name, from, false)
			}
		})
	}
	for _, end := range held {
		end()
	}
	w.wg.Wait()
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// resources is what a process must have given back at the end.
type resources struct{ Goroutines, Files int }

func countResources() resources {
	// The runtime keeps two files for waiting from the first use of a pipe or socket on: count them always.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return resources{runtime.NumGoroutine(), 0} // not Linux
	}
	return resources{runtime.NumGoroutine(), len(files)}
}

// resourcesBack waits until no more is in use than before, and reports false with what is if that does not come about.
func resourcesBack(before resources) (resources, bool) {
	var after resources
	ok := eventually(10*time.Second, func() bool {
		after = countResources()
		return after.Goroutines <= before.Goroutines && after.Files <= before.Files
	})
	return after, ok
}

// eventually asks until the answer is yes, and reports false if it has not been for so long.
func eventually(limit time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return holds()
		}
	}
	return true
}

// upTo is a random duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
