package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// torture is how long the long form of a test is to be; 0 is the short form.
func torture(t *testing.T) time.Duration {
	t.Helper()
	if os.Getenv("LOCKWIRE_TORTURE") != "1" {
		return 0
	}
	text := os.Getenv("LOCKWIRE_TORTURE_TIME")
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("LOCKWIRE_TORTURE_TIME: %v", err)
	}
	return d
}

// lockLoad is goroutines that lock and unlock, any of 100 names each time, and see to it that nobody has a lock together with
// somebody else.
type lockLoad struct {
	t       *testing.T
	lock    func(name string) locker // one of several clients, each time
	names   []string
	mayFail atomic.Bool // as much as it must when masters are lost
	fewer   atomic.Bool // as replicas have gone that a master may still count on
	wg      sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc

	granted, failed atomic.Int64

	mu      sync.Mutex
	holders map[string]*lock.Lease
}

// startLocking begins to lock in 64 goroutines.
func startLocking(t *testing.T, names []string, newLock func(name string) locker) *lockLoad {
	l := &lockLoad{t: t, lock: newLock, names: names, holders: map[string]*lock.Lease{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	for range 64 {
		l.wg.Go(func() {
			for l.ctx.Err() == nil {
				l.once(names[rand.IntN(len(names))])
			}
		})
	}
	return l
}

// due reports whether an error is one that the loss of a master must give: what was sent to it and not answered, what it had
// granted and is lost, or what its replica has not acknowledged.
func due(err error) bool {
	for _, reason := range []error{conn.ErrUncertain, lock.ErrUncertain, lock.ErrNotHeld, lock.ErrLost, lock.ErrNotReplicated} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// once takes a lock and gives it back, and reports whether it had it.
func (l *lockLoad) once(name string) bool {
	lease, err := l.lock(name).Lock(l.ctx)
	if err != nil {
		l.fail("Lock", name, err)
		return false
	}
	l.granted.Add(1)
	l.mu.Lock()
	if other := l.holders[name]; other != nil && other.Err() == nil && lease.Err() == nil {
		l.t.Errorf("two have %s", name)
	}
	l.holders[name] = lease
	l.mu.Unlock()
	l.mu.Lock()
	if l.holders[name] == lease {
		delete(l.holders, name)
	}
	l.mu.Unlock()
	if err := lease.Unlock(l.ctx); err != nil {
		l.fail("Unlock", name, err)
	}
	return true
}

func (l *lockLoad) fail(op, name string, err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.failed.Add(1)
	if !l.mayFail.Load() || !due(err) || !l.fewer.Load() && errors.Is(err, lock.ErrNotReplicated) {
		l.t.Errorf("%s of %s: %v", op, name, err)
	}
}

// goOn waits until each of the names has been had again, by a goroutine beside the others.
func (l *lockLoad) goOn() {
	l.t.Helper()
	var wg sync.WaitGroup
	for _, name := range l.names {
		wg.Go(func() {
			for l.ctx.Err() == nil && !l.once(name) {
			}
		})
	}
	awaitAll(l.t, &wg, "that each lock is had again")
}

// end ends the load, and closes.
func (l *lockLoad) end() {
	l.t.Helper()
	l.stop()
	awaitAll(l.t, &l.wg, "the end of all calls")
	l.t.Logf("%d granted, %d failed", l.granted.Load(), l.failed.Load())
	if l.granted.Load() < int64(len(l.names)) {
		l.t.Errorf("only %d locks were had", l.granted.Load())
	}
}

// waiters are 20 who want the same lock, which is held.
type waiters struct {
	t      *testing.T
	name   string
	held   *lock.Lease
	wg     sync.WaitGroup
	served atomic.Int64
}

// startWaiters takes a lock and has 20 goroutines wait for it. mayFail says that they may have to try again.
func startWaiters(t *testing.T, mine *lock.Client, newLock func(name string) locker, name string, mayFail bool) *waiters {
	w := &waiters{t: t, name: name, held: lockIn(t, mine.Reentrant(name))}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	for range 20 {
		w.wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := newLock(name).Lock(ctx)
				if err == nil {
					if w.held.Err() == nil {
						t.Errorf("%s: a waiter has the lock together with its holder", name)
					}
					w.served.Add(1)
					if err = lease.Unlock(ctx); err == nil || mayFail && due(err) {
						return
					}
				}
				if !mayFail || !due(err) {
					t.Errorf("%s: a waiter: %v", name, err)
					return
				}
			}
		})
	}
	return w
}

// free unlocks, and waits until all have been served.
func (w *waiters) free() {
	w.t.Helper()
	if n := w.served.Load(); n > 0 {
		w.t.Errorf("%s: %d waiters were served while it was held", w.name, n)
	}
	if err := w.held.Check(w.t.Context()); err != nil {
		w.t.Errorf("%s: the holder's lease: %v", w.name, err)
	}
	unlock(w.t, w.held)
	w.allServed()
}

func (w *waiters) allServed() {
	w.t.Helper()
	awaitAll(w.t, &w.wg, w.name+": that all waiters are served")
	if n := w.served.Load(); n != 20 {
		w.t.Errorf("%s: %d of 20 waiters were served", w.name, n)
	}
}

// awaitAll is wg.Wait with a limit.
func awaitAll(t *testing.T, wg *sync.WaitGroup, what string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s has not come about", what)
	}
}

// awaitLost waits until a holder is told, and checks why.
func awaitLost(t *testing.T, lease *lock.Lease, why lock.Reason) {
	t.Helper()
	select {
	case <-lease.Lost():
	case <-time.After(patience):
		t.Fatal("the holder is not told")
	}
	if lost, ok := errors.AsType[*lock.LostError](lease.Err()); !ok || lost.Reason != why {
		t.Errorf("Err() = %v, want the reason %v", lease.Err(), why)
	}
}

// jobs are 100 names.
func jobs() (names []string) {
	for i := range 100 {
		names = append(names, fmt.Sprint("job-", i))
	}
	return names
}

// namesOf returns count names, starting with prefix, of the slots of one node.
func namesOf(c *redistest.Cluster, s *redistest.Server, prefix string, count int) (names []string) {
	for i := 0; len(names) < count; i++ {
		if name := fmt.Sprint(prefix, i); c.Owner(slotOf(name)) == s {
			names = append(names, name)
		}
	}
	return names
}
