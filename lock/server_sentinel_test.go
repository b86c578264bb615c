package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// TestFailovers loses masters while goroutines lock and unlock, others wait for one lock, and a lock is held that the
// new master does not know. In the short form two of the ways, with LOCKWIRE_TORTURE=1 all of them twice.
func TestFailovers(t *testing.T) {
	ways := []redistest.Failover{redistest.Failovers[rand.IntN(2)], redistest.Failovers[2+rand.IntN(2)]}
	torture := os.Getenv("LOCKWIRE_TORTURE") == "1"
	if torture {
		ways = slices.Repeat(redistest.Failovers, 2)
	}
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		x := &failing{t: t, s: s, torture: torture}
		before := countResources()
		cfg := s.Config()
		cfg.Retry = conn.Retry{Attempts: 1 << 20, Budget: -1} // sentinels may have to vote twice
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if x.locks, err = lock.New(pool, lock.Config{Lease: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if x.swift, err = lock.New(pool, lock.Config{Lease: 3 * time.Second, Acks: lock.AcksOff}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		x.listen(ctx)
		x.workers.Go(func() { x.probe(ctx) })
		for range 64 {
			x.workers.Go(func() { x.work(ctx) })
		}
		for _, way := range ways {
			x.fail(way)
		}
		cancel()
		x.workers.Wait()
		if err := errors.Join(x.locks.Close(), x.swift.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
		if after, ok := resourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

// failing is one run of TestFailovers.
type failing struct {
	t       *testing.T
	s       *redistest.Sentinels
	torture bool
	locks   *lock.Client
	swift   *lock.Client // which does not wait for replicas: those of a new master may take a second to follow it
	workers sync.WaitGroup
	at      atomic.Int64 // the first +switch-master, in Unix ns
	lastAt  atomic.Int64 // the last one
	first   atomic.Int64 // when a lock was granted that was asked for after the first; 0: none yet
	granted atomic.Int64
	failed  atomic.Int64
}

// listen takes the times of the first and the last +switch-master, until ctx ends. Sentinels that did not lead the failover learn
// of it up to a second later, and nobody knows which of them the pool listens to.
func (x *failing) listen(ctx context.Context) {
	for _, sentinel := range x.s.Sentinels() {
		stream, err := conn.DialStream(x.t.Context(), sentinel.Config())
		if err == nil {
			err = stream.Write(x.t.Context(), resp.Cmd("SUBSCRIBE", "+switch-master"))
		}
		if err != nil {
			x.t.Fatal(err)
		}
		x.workers.Go(func() {
			for {
				v, err := stream.Read()
				if err != nil {
					return
				}
				if kind, _ := v.At(0).Text(); kind == "message" {
					now := time.Now().UnixNano()
					x.at.CompareAndSwap(0, now)
					x.lastAt.Store(now)
				}
			}
		})
		context.AfterFunc(ctx, func() { stream.Close() })
	}
}

// due reports whether an error is one that a failover must give: what was sent to the old master and not answered, or was
// granted by it and is lost, or what the new one has no replica for yet.
func due(err error) bool {
	for _, reason := range []error{conn.ErrUncertain, lock.ErrUncertain, lock.ErrNotHeld, lock.ErrLost, lock.ErrNotReplicated} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// probe takes locks that nobody has had before. Others may be taken for as long as their leases last: the new master may
// not know of a release.
func (x *failing) probe(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now().UnixNano()
		x.take(ctx, x.swift, fmt.Sprint("probe-", n), func() {
			if at := x.at.Load(); at > 0 && begin > at {
				x.first.CompareAndSwap(0, time.Now().UnixNano())
			}
		})
		pause(ctx, time.Millisecond)
	}
}

// work locks and unlocks any of 100 locks.
func (x *failing) work(ctx context.Context) {
	for ctx.Err() == nil {
		x.take(ctx, x.locks, fmt.Sprint("job-", rand.IntN(100)), func() {})
	}
}

// take has a lock for as long as do takes, if it is not in the way of a failover.
func (x *failing) take(ctx context.Context, locks *lock.Client, name string, do func()) {
	lease, err := locks.Reentrant(name).Lock(ctx)
	if err != nil {
		if ctx.Err() == nil && !due(err) {
			x.t.Errorf("Lock = %v", err)
		}
		x.failed.Add(1)
		return
	}
	x.granted.Add(1)
	do()
	if err := lease.Unlock(ctx); err != nil {
		x.failed.Add(1)
		if !due(err) {
			x.t.Errorf("Unlock = %v", err)
		}
	}
}

// fail loses the master in one way, and sees to it that all who wait are served, and who has lost is told.
func (x *failing) fail(way redistest.Failover) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	name := "held-" + strings.ReplaceAll(way.Name, " ", "-")
	held, err := x.locks.Reentrant(name).Lock(ctx)
	if err != nil {
		x.t.Fatalf("%s: Lock = %v", way.Name, err)
	}
	var waiters sync.WaitGroup
	var served atomic.Int64
	for range 20 {
		waiters.Go(func() {
			for {
				lease, err := x.locks.Reentrant(name).Lock(ctx)
				if err == nil {
					served.Add(1)
					if err := lease.Unlock(ctx); err != nil && !due(err) {
						x.t.Errorf("%s: Unlock of a waiter = %v", way.Name, err)
					}
					return
				}
				if !due(err) || ctx.Err() != nil {
					x.t.Errorf("%s: Lock of a waiter = %v", way.Name, err)
					return
				}
			}
		})
	}
	x.at.Store(0)
	x.first.Store(0)
	old := x.s.Master()
	way.Begin(x.s, old)
	master := x.s.AwaitMaster(old)
	master.Do("DEL", name) // as if it had never heard of it
	select {
	case <-held.Lost():
	case <-ctx.Done():
		x.t.Errorf("%s: the holder is not told", way.Name)
	}
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		x.t.Errorf("%s: Err of the lost lease = %v", way.Name, err)
	}
	waiters.Wait()
	if n := served.Load(); n != 20 {
		x.t.Errorf("%s: %d of 20 waiters were served", way.Name, n)
	}
	if !eventually(patience, func() bool { return x.first.Load() > 0 }) {
		x.t.Errorf("%s: no lock was granted after the switch", way.Name)
	}
	first := max(time.Duration(x.first.Load()-x.lastAt.Load()), 0)
	x.t.Logf("%s: first lock %v after +switch-master; %d granted, %d lost or uncertain", way.Name, first, x.granted.Load(), x.failed.Load())
	if x.torture && first > 500*time.Millisecond {
		x.t.Errorf("%s: first lock %v after +switch-master", way.Name, first)
	}
	way.End(x.s, old)
	x.s.AwaitHealthy()
}
