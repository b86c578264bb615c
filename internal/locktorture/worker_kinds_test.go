package locktorture_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/lock"
)

// trade is how workers use one kind of lock, and what must be true of it whatever fails.
type trade struct {
	name   string
	rules  locktorture.Rules
	config lock.Config
	turn   func(w *worker, ctx context.Context, rng *rand.Rand)
	once   func(w *worker, rng *rand.Rand) // shows that there is an end to what the faults do; nil if that is to be seen otherwise

	// Of a kind with leases.
	locker func(w *worker, a ask) locker
	dead   time.Duration // for how long, apart from the lease, others may have to wait for somebody who died

	// Of a kind that has a number: how it is set, read, and given back to.
	set  func(ctx context.Context, c *lock.Client, name string, n int) (bool, error)
	seen func(ctx context.Context, c *lock.Client, name string) (int, error)
	give func(ctx context.Context, c *lock.Client, name string, n int) error
}

// locker is what the kinds with leases have in common.
type locker interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}

func tradeOf(name string) *trade {
	return trades[slices.IndexFunc(trades, func(t *trade) bool { return t.name == name })]
}

var trades = []*trade{
	locks("reentrant", locktorture.Rules{}, func(w *worker, a ask) locker { return w.locks.Reentrant(a.name) }),
	locks("spin", locktorture.Rules{}, func(w *worker, a ask) locker { return w.locks.Spin(a.name, lock.Backoff{}) }),
	locks("nonreentrant", locktorture.Rules{Single: true}, func(w *worker, a ask) locker {
		if w.Careless && a.further {
			return w.locks.Reentrant(a.name) // which allows it
		}
		return w.locks.NonReentrant(a.name)
	}),
	locks("fenced", locktorture.Rules{Tokens: true}, func(w *worker, a ask) locker { return w.locks.Fenced(a.name) }),
	plainTokens(),
	fair("fair", locktorture.Rules{Queue: true}, func(w *worker, a ask) locker { return w.locks.Fair(a.name) }),
	fair("nonreentrantfair", locktorture.Rules{Queue: true, Single: true}, func(w *worker, a ask) locker {
		return w.locks.NonReentrantFair(a.name)
	}),
	locks("readwrite", locktorture.Rules{Readers: true}, halfOf),
	writersFirst(),
	{
		name: "permits", rules: locktorture.Rules{Permits: true, Leased: true},
		turn: (*worker).turn, once: (*worker).onceMore,
		locker: func(w *worker, a ask) locker { return manyPermits{w.locks.PermitSemaphore(a.name), a.permits} },
		set: func(ctx context.Context, c *lock.Client, name string, n int) (bool, error) {
			return c.PermitSemaphore(name).TrySetPermits(ctx, n)
		},
		seen: func(ctx context.Context, c *lock.Client, name string) (int, error) {
			return c.PermitSemaphore(name).Permits(ctx)
		},
	},
	{
		name: "semaphore", rules: locktorture.Rules{Permits: true},
		turn: (*worker).turnOfSemaphore,
		set: func(ctx context.Context, c *lock.Client, name string, n int) (bool, error) {
			return c.Semaphore(name).TrySetPermits(ctx, n)
		},
		seen: func(ctx context.Context, c *lock.Client, name string) (int, error) {
			return c.Semaphore(name).Available(ctx)
		},
		give: func(ctx context.Context, c *lock.Client, name string, n int) error {
			return c.Semaphore(name).Release(ctx, n)
		},
	},
	{
		name: "latch", rules: locktorture.Rules{Count: true},
		turn: (*worker).turnOfLatch, once: (*worker).onceOfLatch,
		set: func(ctx context.Context, c *lock.Client, name string, n int) (bool, error) {
			return c.CountDownLatch(name).TrySetCount(ctx, n)
		},
		seen: func(ctx context.Context, c *lock.Client, name string) (int, error) {
			return c.CountDownLatch(name).Count(ctx)
		},
	},
}

func locks(name string, rules locktorture.Rules, l func(w *worker, a ask) locker) *trade {
	return &trade{name: name, rules: rules, turn: (*worker).turn, once: (*worker).onceMore, locker: l}
}

// plainTokens are those that start anew when the server has lost the last one.
func plainTokens() *trade {
	t := locks("fenced, plain tokens", locktorture.Rules{Tokens: true}, func(w *worker, a ask) locker { return w.locks.Fenced(a.name) })
	t.config.PlainTokens = true
	return t
}

// fair is a kind with a queue, past which the careless take what is free.
func fair(name string, rules locktorture.Rules, l func(w *worker, a ask) locker) *trade {
	t := locks(name, rules, func(w *worker, a ask) locker {
		if w.Careless && a.try {
			return w.locks.Reentrant(a.name)
		}
		return l(w, a)
	})
	t.dead = 15 * time.Second // who is connected and does not come
	return t
}

// writersFirst keeps readers out while a writer waits, and for a while when one has died waiting.
func writersFirst() *trade {
	t := locks("readwrite, writers first", locktorture.Rules{Readers: true}, halfOf)
	t.config.PreferWriters = true
	t.dead = 15 * time.Second
	return t
}

func halfOf(w *worker, a ask) locker {
	if a.mode == locktorture.Read {
		return w.locks.ReadWrite(a.name).Read()
	}
	return w.locks.ReadWrite(a.name).Write()
}

// manyPermits makes a lock of some permits.
type manyPermits struct {
	semaphore *lock.PermitSemaphore
	n         int
}

func (p manyPermits) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.semaphore.AcquireMany(ctx, p.n, opts...)
}

func (p manyPermits) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.semaphore.TryAcquireMany(ctx, p.n, opts...)
}

// turnOfSemaphore takes permits and gives them back. The careless give back more than they took.
func (w *worker) turnOfSemaphore(ctx context.Context, rng *rand.Rand) {
	wait, cancel := context.WithTimeout(ctx, w.Lease/8+upTo(rng, 4*w.Lease))
	defer cancel()
	e, err := w.acquire(wait, w.Names[rng.IntN(len(w.Names))], 1+rng.IntN(mostPermits), rng.IntN(4) == 0)
	if err != nil {
		locktorture.Pause(ctx, upTo(rng, 10*time.Millisecond))
		return
	}
	locktorture.Pause(ctx, w.holdFor(rng))
	n := e.Permits
	if w.Careless {
		n++
	}
	w.giveBack(e, n)
}

// acquire takes n permits that have no lease and logs the answer.
func (w *worker) acquire(ctx context.Context, name string, n int, try bool) (locktorture.Event, error) {
	e := locktorture.Event{Kind: locktorture.Asked, Hold: w.log.NextHold(), Name: name, Permits: n}
	w.log.Add(e)
	s := w.locks.Semaphore(name)
	get := s.Acquire
	if try {
		get = s.TryAcquire
	}
	err := get(ctx, n)
	e.Kind = locktorture.Acquired
	if err != nil {
		e.Kind, e.Text = locktorture.Refused, err.Error()
		if errors.Is(err, lock.ErrNotSet) {
			w.fail("the permits of %q are gone", name)
		}
	}
	w.log.Add(e)
	return e, err
}

func (w *worker) giveBack(e locktorture.Event, n int) {
	e.Kind = locktorture.Releasing
	w.log.Add(e)
	w.released(e, w.locks.Semaphore(e.Name).Release(context.Background(), n))
}

// turnOfLatch counts the first latch down, which is never open, or one of the others, or waits for that. All go on to the next
// one when one is open. The careless delete latches.
func (w *worker) turnOfLatch(ctx context.Context, rng *rand.Rand) {
	round := w.round.Load()
	name := w.Names[1:][min(int(round), len(w.Names)-2)]
	switch rng.IntN(4) {
	case 0:
		w.countDown(w.Names[0])
	case 1, 2:
		w.countDown(name)
	default:
		wait, cancel := context.WithTimeout(ctx, upTo(rng, w.Lease))
		defer cancel()
		if w.Careless && rng.IntN(10) == 0 {
			w.locks.CountDownLatch(name).Delete(wait)
		}
		e := locktorture.Event{Kind: locktorture.Asked, Hold: w.log.NextHold(), Name: name, Mode: locktorture.Wait}
		w.log.Add(e)
		e.Kind = locktorture.Acquired
		if err := w.locks.CountDownLatch(name).Wait(wait); err != nil {
			e.Kind, e.Text = locktorture.Refused, err.Error()
		} else {
			w.round.CompareAndSwap(round, round+1)
		}
		w.log.Add(e)
	}
}

func (w *worker) countDown(name string) {
	e := locktorture.Event{Kind: locktorture.Asked, Hold: w.log.NextHold(), Name: name, Mode: locktorture.Down}
	w.log.Add(e)
	w.released(e, w.locks.CountDownLatch(name).CountDown(context.Background()))
}

func (w *worker) onceOfLatch(*rand.Rand) { w.countDown(w.Names[0]) }

// limit is by when a lock can be had, after the faults and two leases.
func (t *trade) limit() time.Duration { return patience + t.dead }
