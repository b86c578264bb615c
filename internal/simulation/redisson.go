package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/simulation/redisson"
	"github.com/lockwire/lockwire/lock"
)

// redissonLease is a hold of Redisson's. Its holder never learns of a loss, and relies on the hold until the first possible
// end.
type redissonLease struct {
	*redisson.Hold
	over atomic.Bool
}

var errOver = errors.New("simulation: the lease is over")

func (l *redissonLease) Err() error {
	if l.over.Load() || !time.Now().Before(l.ValidUntil()) {
		l.over.Store(true)
		return errOver
	}
	return nil
}

// ValidUntil leaves the same margin for drifting clocks as lockwire.
func (l *redissonLease) ValidUntil() time.Time {
	return l.Hold.ValidUntil().Add(-longestLease/100 - 2*time.Millisecond)
}

func (l *redissonLease) Lost() <-chan struct{}       { return nil }
func (l *redissonLease) Members() []*lock.Lease      { return nil }
func (l *redissonLease) PermitIDs() []string         { return nil }
func (l *redissonLease) Check(context.Context) error { return nil }

const (
	// redissonTimeout is Redisson's for an answer.
	redissonTimeout = 3 * time.Second
	// redissonLimit is by how much a call of Redisson's may take longer than its wait: two answers, and a subscription.
	redissonLimit = 2*redissonTimeout + 15*time.Second
	// redissonPatience is the longest time a lock may be free while only Redisson's waiters wait. A waiter that misses the
	// message sleeps for the rest of the lease seen.
	redissonPatience = longestLease + 2*time.Second
)

// startRedisson gives a process Redisson's client. All its leases have the longest length: a renewal of Redisson's sets the
// lease of all readers to its own, also of readers with a longer lease (anomaly A05).
func (p *process) startRedisson() {
	pool, err := conn.New(conn.Config{Addr: "server:6379", Dial: p.routes[0].dial, Timeout: redissonTimeout, Protocol: pick(p.dice, []int{0, 2})})
	if err != nil {
		panic(err)
	}
	p.pool, p.lease = pool, longestLease
	p.redisson = redisson.New(pool, p.lease)
	p.world.history.add(p.name, "", "starts: Redisson, lease %v, client %s", p.lease, p.redisson.ID())
}

// nextThread is the number of a fresh thread: a late release by a used thread would release the thread's later hold.
func (p *process) nextThread() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threads++
	return p.threads
}

// kindIn is Redisson's kind of lock that excludes the other kinds of an object.
func kindIn(o *object, d *dice) redisson.Kind {
	switch {
	case o.family == readWrite && d.oneIn(3):
		return redisson.Write
	case o.family == readWrite:
		return redisson.Read
	case slices.Contains(o.kinds, fair), slices.Contains(o.kinds, nonReentrantFair):
		return redisson.Fair
	case slices.Equal(o.kinds, []string{fenced}):
		return redisson.Fenced
	}
	return redisson.Plain
}

// turnOfRedisson uses an object as Redisson does.
func (k *worker) turnOfRedisson(o *object) {
	switch o.family {
	case readWrite, exclusive:
		k.redissonLock(o)
	case semaphore:
		k.redissonSemaphore(o)
	}
}

func (k *worker) redissonLock(o *object) {
	kind := kindIn(o, k.dice)
	if kind == redisson.Plain && k.dice.oneIn(60) {
		k.force(o, "Redisson", func(ctx context.Context) (bool, error) { return k.process.redisson.Force(ctx, o.name) })
		return
	}
	k.thread = k.process.nextThread()
	if h := k.takeAsRedisson(o, kind); h != nil {
		k.work(h)
		k.giveBack(h)
	}
}

func (k *worker) takeAsRedisson(o *object, kind redisson.Kind) *hold {
	if !k.pass() {
		return nil
	}
	r := redisson.Request{Kind: kind, Name: o.name, Thread: k.thread, Try: k.dice.oneIn(4)}
	text := ""
	if !r.Try && (kind == redisson.Fair || !k.dice.oneIn(4)) { // behind a dead head of the queue Redisson waits for minutes
		r.Wait = time.Millisecond + k.dice.upTo(pick(k.dice, []time.Duration{500 * time.Millisecond, 5 * time.Second, 20 * time.Second}))
		text = fmt.Sprint(" within ", r.Wait)
	}
	mode := map[redisson.Kind]string{redisson.Read: "read", redisson.Write: "write"}[kind]
	limit := time.Duration(0)
	if r.Wait > 0 || r.Try {
		limit = r.Wait + redissonLimit
	}
	k.begin(o, limit, !r.Try && kind != redisson.Fair, "%s try: %v%s", kind, r.Try, text)
	got, err := k.process.redisson.Lock(context.Background(), r)
	switch {
	case err == nil && got == nil:
		err = lock.ErrNotAcquired
	case errors.Is(err, conn.ErrClosed) && k.process.closing():
		err = lock.ErrClosed
	}
	if !k.end(err) || err != nil {
		return nil
	}
	w := k.process.world
	h := &hold{worker: k, object: o, lease: &redissonLease{Hold: got}, mode: mode, fenced: kind == redisson.Fenced, shared: true,
		term: k.process.lease, since: got.Since()}
	w.history.add(k.name, o.name, "has it as %s, token %d, woken: %v", got.Owner(), got.Token(), got.Woken())
	if got.Woken() {
		w.count("Redisson woken")
	}
	w.acquired(h)
	return h
}

func (k *worker) redissonSemaphore(o *object) {
	w, c := k.process.world, k.process.redisson
	if !k.pass() {
		return
	}
	n, wait := 1+k.dice.n(o.total), k.dice.upTo(5*time.Second)
	k.begin(o, wait+redissonLimit, true, "RSemaphore, %d permits within %v", n, wait)
	since := time.Now()
	got, err := c.Acquire(context.Background(), o.name, n, wait)
	if errors.Is(err, conn.ErrClosed) && k.process.closing() {
		err = lock.ErrClosed
	}
	if !k.end(err) || err != nil {
		w.missing(o, n) // Redisson does not undo unknown grants
		return
	}
	if !got {
		return
	}
	w.took(o, n, since)
	k.pause(k.dice.upTo(pick(k.dice, []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond})), nil)
	w.took(o, -n, since)
	if !k.pass() {
		w.missing(o, n)
		return
	}
	k.begin(o, redissonLimit, false, "RSemaphore, release of %d", n)
	if err := c.Release(context.Background(), o.name, n); !k.end(err) || err != nil {
		w.missing(o, n)
	}
}

// handed counts the successions of owners of an exclusive lock, so that a run shows turns of both sides.
func (w *world) handedLocked(o *object, h *hold) {
	if !w.mixed || o.family != exclusive {
		return
	}
	side := map[bool]string{true: "Redisson", false: "lockwire"}
	now := h.worker.process.redisson != nil
	if o.side != "" {
		w.report.Events[o.side+" before "+side[now]]++
	}
	o.side = side[now]
}

// count counts an event for the report.
func (w *world) count(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Events[event]++
}
