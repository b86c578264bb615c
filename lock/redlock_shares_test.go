package lock_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// taking is what processes had that want one lock all the time.
type taking struct {
	turns   []int           // of each process
	longest []time.Duration // wait of each
	all     int
}

// keepTaking has each Redlock locked again and again for some time.
func (f fleet) keepTaking(t *testing.T, locks []*lock.Redlock, length, hold time.Duration, opts ...lock.Option) taking {
	got := taking{turns: make([]int, len(locks)), longest: make([]time.Duration, len(locks))}
	end := time.Now().Add(length)
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(length))
	defer cancel()
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i, r := range locks {
		wg.Go(func() {
			for time.Now().Before(end) {
				start := time.Now()
				lease, err := r.Lock(ctx, opts...)
				got.longest[i] = max(got.longest[i], time.Since(start))
				if err != nil {
					t.Errorf("Lock() = %v", err)
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two have the lock")
				}
				got.turns[i]++
				f[0].sleep(hold)
				inside.Add(-1)
				mustUnlock(t, lease)
			}
		})
	}
	wg.Wait()
	for _, n := range got.turns {
		got.all += n
	}
	t.Logf("turns %v, longest waits %v", got.turns, got.longest)
	return got
}

// Processes share a Redlock, in the same or in another order of the servers, while servers fail, hang, or are kept by others.
func TestRedlockSharesBesideFaults(t *testing.T) {
	t.Parallel()
	fails := func(at ...int) func(*testing.T, fleet) func() {
		return func(t *testing.T, f fleet) func() {
			for _, i := range at {
				down["refuses"](f[i].srv, true)
			}
			return func() {
				for _, i := range at {
					down["refuses"](f[i].srv, false)
				}
			}
		}
	}
	kept := func(t *testing.T, f fleet) func() {
		lease := mustLock(t, f[0].client(lock.Config{}), "job")
		return func() { mustUnlock(t, lease) }
	}
	hangs := func(t *testing.T, f fleet) func() {
		mend := fails(2)(t, f)
		time.AfterFunc(time.Second, func() { f[0].srv.Stall(true) })
		time.AfterFunc(1400*time.Millisecond, func() { f[0].srv.Stall(false) })
		return mend
	}
	for name, c := range map[string]struct {
		nodes   int
		another bool // each process has its own order
		fault   func(*testing.T, fleet) (mend func())
	}{
		"one fails":                    {3, true, fails(2)},
		"two of five fail":             {5, true, fails(1, 3)},
		"the first is kept":            {3, false, kept},
		"one is kept":                  {3, true, kept},
		"one fails and one hangs once": {3, false, hangs},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, c.nodes, func(t *testing.T, f fleet) {
				f.slow()
				var locks []*lock.Redlock
				for i := range 4 {
					p := f.process(lock.Config{})
					if c.another {
						p = slices.Concat(p[i%c.nodes:], p[:i%c.nodes])
					}
					locks = append(locks, p.redlock(t, lock.RedlockConfig{}, false))
				}
				mend := c.fault(t, f)
				got := f.keepTaking(t, locks, 40*time.Second, 10*time.Millisecond)
				if got.all < 1500 || slices.Min(got.turns) < got.all/10 || slices.Max(got.longest) > 12*time.Second {
					t.Error("the lock was not shared")
				}
				mend()
				time.Sleep(time.Minute)
				f.free()
			})
		})
	}
}

// A lease too short for two round trips, one behind the other, is won by asking all servers at once.
func TestRedlockSharesOfShortLeases(t *testing.T) {
	t.Parallel()
	inFleet(t, 3, func(t *testing.T, f fleet) {
		for _, w := range f {
			w.srv.Latency(15 * time.Millisecond)
		}
		var locks []*lock.Redlock
		for range 3 {
			locks = append(locks, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{NodeTimeout: 50 * time.Millisecond}, false))
		}
		got := f.keepTaking(t, locks, 40*time.Second, 10*time.Millisecond, lock.For(100*time.Millisecond))
		if got.all < 80 || slices.Max(got.longest) > 15*time.Second {
			t.Error("the lock was not had")
		}
		time.Sleep(time.Minute)
		f.free()
	})
}

// A server has no vote by a grant of another process than the one that INFO describes: the server refuses the acquire behind INFO, and is replaced by
// one without the lock, or restarts.
func TestRedlockVoteOfAnotherProcess(t *testing.T) {
	for _, refusal := range []string{"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory"} {
		for _, restarts := range []bool{false, true} {
			inFleet(t, 4, func(t *testing.T, f fleet) {
				first := f[:3].process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				down["refuses"](f[2].srv, true)
				mine := lockRed(t, first)
				down["refuses"](f[2].srv, false)
				time.Sleep(time.Second)

				var moved atomic.Bool
				pool, err := conn.Open(t.Context(), conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if moved.Load() {
						return f[3].srv.Dial(ctx, network, addr)
					}
					return f[1].srv.Dial(ctx, network, addr)
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				c, err := lock.New(pool, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				p := f[:3].process(lock.Config{})
				p[1] = c
				other := p.redlock(t, lock.RedlockConfig{}, false)
				_, err = other.TryLock(t.Context())
				wantErr(t, "TryLock() of a lock of another", err, lock.ErrNotAcquired)
				time.Sleep(time.Second)

				var once atomic.Bool
				f[1].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name != "EVALSHA" || !strings.Contains(cmd.String(), c.ID()) || !once.CompareAndSwap(false, true) {
						return fakeredis.Run()
					}
					moved.Store(!restarts)
					if restarts {
						time.AfterFunc(time.Microsecond, func() {
							f[1].srv.Restart()
							teach(f[1].srv)
						})
					}
					return fakeredis.Reply("-" + refusal + "\r\n")
				})
				if _, err := other.TryLock(t.Context()); err == nil {
					t.Errorf("%s: two have the lock; the first lease: %v", refusal, mine.Err())
				}
				synctest.Wait()
				f[1].srv.Intercept(nil)
				_ = mine.Unlock(t.Context())
				time.Sleep(30 * time.Second)
			})
		}
	}
}

// A caller whose leases came too late, over a slow network, waits in line when the network is fast again and the lock is taken.
func TestRedlockSlowThenTaken(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{MinValidity: 0.9, NodeTimeout: 400 * time.Millisecond}, false)
		lease := lockRed(t, other)
		got := make(chan *lock.Lease, 1)
		go func() {
			won, _ := r.Lock(t.Context(), lock.For(time.Second))
			got <- won
		}()
		time.Sleep(100 * time.Millisecond)
		for _, w := range f {
			w.srv.Latency(80 * time.Millisecond)
		}
		mustUnlock(t, lease)
		time.Sleep(6 * time.Second)
		f.slow()
		lease, err := other.TryLock(t.Context())
		for ; err != nil; lease, err = other.TryLock(t.Context()) {
			time.Sleep(latency)
		}
		time.Sleep(time.Second)
		before := f.commands()
		time.Sleep(2 * time.Second)
		if n := f.commands() - before; n > 100 {
			t.Errorf("%d commands in two seconds while the lock is taken", n)
		}
		mustUnlock(t, lease)
		if won := <-got; won == nil {
			t.Error("the waiter has gone")
		} else {
			_ = won.Unlock(t.Context())
		}
		time.Sleep(40 * time.Second)
		f.free()
	})
}
