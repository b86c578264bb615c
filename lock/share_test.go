//go:build !race

package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// A client that knows Redisson's channel only, and asks 2 ms after each message, gets at least half of its equal share beside
// processes of one or four callers each, and they keep most of theirs.
func TestSlowPeerHasItsShare(t *testing.T) {
	t.Parallel()
	const instant, short, long = 20 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond
	for _, test := range []struct {
		processes, callers int
		hold               time.Duration
		back               time.Duration // the server's clock is set back
	}{
		{1, 4, short, 0}, {2, 4, short, 0}, {4, 4, short, 0}, {1, 4, long, 0}, {2, 4, long, 0},
		{1, 1, short, 0}, {2, 1, short, 0}, {4, 1, short, 0}, {1, 1, long, 0}, {2, 1, long, 0}, {1, 1, short, time.Hour},
		{1, 1, instant, 0}, {1, 4, instant, 0}, {2, 4, instant, 0},
	} {
		t.Run(fmt.Sprintf("%d times %d of %v, clock back by %v", test.processes, test.callers, test.hold, test.back), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(100 * time.Microsecond)
				length := max(8*time.Second, 300*test.hold)
				if test.hold == instant {
					length = time.Second
				}
				end := time.Now().Add(length)
				time.AfterFunc(length/4, func() { w.srv.Jump(-test.back) })
				var ours, theirs int
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range test.processes {
					c := w.client(lock.Config{})
					for range test.callers {
						wg.Go(func() { w.holdAgain(t, c, test.hold, end, &mu, &ours) })
					}
				}
				events, leave := w.hear(t, jobChannel)
				defer leave()
				peer := newRedisson(w)
				for time.Now().Before(end) {
					w.sleep(300 * time.Microsecond) // a round trip, and what it does in between
					for !peer.lock("job", "peer:1", time.Minute) {
						select {
						case <-events.Events():
							w.sleep(2 * time.Millisecond)
						case <-time.After(30 * time.Second):
							t.Error("the peer has waited for 30 s")
						}
					}
					theirs++
					w.sleep(test.hold)
					w.srv.Do("DEL", "job")
					w.srv.Do("PUBLISH", jobChannel, "0")
				}
				wg.Wait()
				all := ours + theirs
				if equal := all / (test.callers*test.processes + 1); 2*theirs < equal {
					t.Errorf("the peer had %d of %d turns, want half of %d at least", theirs, all, equal)
				}
				if possible := int(length / test.hold); test.hold > instant && all < possible*3/4 {
					t.Errorf("%d turns of %v in %v", all, test.hold, length)
				}
				t.Logf("peer %d, others %d", theirs, ours)
				w.sleep(time.Second)
			})
		})
	}
}

// A client that knows Redisson's channel only, such as one of an older version of this package, and asks 2 ms after each message, gets at
// least half of its equal share beside processes of one or four callers each, and they keep most of theirs.
func TestSlowPeerHasItsShareOfPermits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ processes, callers, permits int }{{1, 4, 1}, {1, 4, 3}, {2, 4, 1}, {4, 4, 3}, {1, 1, 1}, {2, 1, 1}, {1, 3, 3}, {4, 1, 3}, {2, 4, 3}} {
		t.Run(fmt.Sprintf("%d times %d for %d", test.processes, test.callers, test.permits), func(t *testing.T) {
			withPermits(t, test.permits, func(t *testing.T, w *world, k counted) {
				slowPeerOfPermits(t, w, k, test.processes, test.callers, test.permits)
			})
		})
	}
}

// Several processes with Redisson's protocol have half of their equal share at least, and the processes beside them have the rest in equal parts.
func TestSlowPeersHaveTheirShare(t *testing.T) {
	t.Parallel()
	const instant = 20 * time.Microsecond
	for _, test := range []struct {
		peers, threads     int
		processes, callers int
		hold               time.Duration
	}{
		{2, 4, 2, 4, 5 * time.Millisecond}, {2, 4, 2, 4, 20 * time.Millisecond}, {3, 2, 3, 2, 3 * time.Millisecond},
		{2, 4, 1, 4, 5 * time.Millisecond}, {4, 4, 1, 4, 5 * time.Millisecond}, {2, 4, 4, 4, 5 * time.Millisecond},
		{1, 4, 1, 4, instant}, {2, 4, 2, 4, instant},
	} {
		t.Run(fmt.Sprintf("%d times %d beside %d times %d, %v", test.peers, test.threads, test.processes, test.callers, test.hold), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(100 * time.Microsecond)
				length := max(8*time.Second, 300*test.hold)
				if test.hold == instant {
					length = time.Second
				}
				end := time.Now().Add(length)
				var mu sync.Mutex
				ours, theirs := make([]int, test.processes), 0
				var wg sync.WaitGroup
				for i := range ours {
					c := w.client(lock.Config{})
					for range test.callers {
						wg.Go(func() { w.holdAgain(t, c, test.hold, end, &mu, &ours[i]) })
					}
				}
				for i := range test.peers {
					p := newSlowPeer(t, w, 2*time.Millisecond)
					defer p.close()
					for k := range test.threads {
						wg.Go(func() {
							for p.hold(t, w, fmt.Sprintf("peer%d:%d", i, k), test.hold, end) {
								mu.Lock()
								theirs++
								mu.Unlock()
							}
						})
					}
				}
				wg.Wait()
				all := theirs
				for _, n := range ours {
					all += n
				}
				rivals, callers := test.peers*test.threads, test.processes*test.callers
				if 2*theirs*(rivals+callers) < all*rivals || 2*(all-theirs)*(rivals+callers) < all*callers {
					t.Errorf("%d peers had %d of %d turns, and %d callers had %d", rivals, theirs, all, callers, all-theirs)
				}
				if 3*slices.Min(ours) < 2*slices.Max(ours) {
					t.Errorf("the processes had %v turns", ours)
				}
				t.Logf("peers %d, others %v", theirs, ours)
				w.srv.Latency(0)
				w.sleep(time.Second)
			})
		})
	}
}

// Callers of Redisson's RedLock wait at the first server, and then take one server after the other. Beside as many callers of
// one or two processes neither side has less than a tenth of the turns, near to the servers and far away.
func TestRedlockSharesWithRedisson(t *testing.T) {
	t.Parallel()
	const callers, hold = 4, 5 * time.Millisecond
	for _, test := range []struct {
		processes     int
		late, latency time.Duration
	}{
		{1, 2 * time.Millisecond, 100 * time.Microsecond},
		{1, 2 * time.Millisecond, 300 * time.Microsecond},
		{1, 300 * time.Microsecond, 300 * time.Microsecond},
		{2, 2 * time.Millisecond, 100 * time.Microsecond},
		{2, 300 * time.Microsecond, 300 * time.Microsecond},
	} {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			var mu sync.Mutex
			ours, theirs := 0, 0
			var wg sync.WaitGroup
			end := time.Now().Add(5 * time.Second)
			var peers []*slowPeer
			for _, w := range f {
				w.srv.Latency(test.latency)
				p := newSlowPeer(t, w, test.late)
				defer p.close()
				peers = append(peers, p)
			}
			for i := range callers {
				wg.Go(func() {
					for f.waitAt(peers, fmt.Sprint("peer:", i), end) {
						mu.Lock()
						theirs++
						mu.Unlock()
						f[0].sleep(hold)
						for k, p := range peers {
							p.release(f[k])
						}
					}
				})
			}
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			var locks []*lock.Redlock
			for range test.processes {
				locks = append(locks, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
			}
			for i := range callers {
				r := locks[i%test.processes]
				wg.Go(func() {
					for lease, err := r.Lock(ctx); err == nil; lease, err = r.Lock(ctx) {
						mu.Lock()
						ours++
						mu.Unlock()
						f[0].sleep(hold)
						mustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			t.Logf("%+v: Redisson's clients had %d turns, and ours %d", test, theirs, ours)
			if all := ours + theirs; all < 500 || 10*ours < all || 10*theirs < all {
				t.Errorf("of %d turns Redisson's callers had %d, and ours %d", all, theirs, ours)
			}
		})
	}
}

// Processes that want the lock all the time have it equally often, with delays that differ with each message.
func TestRedlockShares(t *testing.T) {
	t.Parallel()
	const length = 3 * time.Second
	for _, c := range []struct {
		nodes, processes int
		hold             time.Duration
	}{{3, 2, 20 * time.Millisecond}, {3, 3, time.Millisecond}, {5, 3, time.Millisecond}} {
		inFleet(t, c.nodes, func(t *testing.T, f fleet) {
			for _, w := range f {
				w.srv.Latency(latency / 4)
				w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action {
					return fakeredis.Run().Late(rand.N(latency / 2))
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			counts, longest, all := make([]int, c.processes), make([]time.Duration, c.processes), 0
			var wg sync.WaitGroup
			for i := range c.processes {
				r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				wg.Go(func() {
					for {
						start := time.Now()
						lease, err := r.Lock(ctx)
						if err != nil {
							return
						}
						longest[i] = max(longest[i], time.Since(start))
						counts[i]++
						f[0].sleep(c.hold)
						mustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			for _, n := range counts {
				all += n
			}
			if want := int(length / (c.hold + 5*time.Millisecond)); all < want {
				t.Errorf("%d leases in %v, want %d", all, length, want)
			}
			for i, n := range counts {
				if n < all*2/3/c.processes || longest[i] > 700*time.Millisecond {
					t.Errorf("of %d leases a process had %d, and waited for %v", all, n, longest[i])
				}
			}
			f[0].sleep(20 * time.Second) // for the latches of requests that were cancelled
			f.free()
		})
	}
}

// A client of Redisson's protocol that asks 2 ms after each message, to write, gets at least half of its equal share beside
// processes of one or four callers each, of whom some read.
func TestSlowWriterHasItsShare(t *testing.T) {
	const instant, short = 20 * time.Microsecond, 5 * time.Millisecond
	for _, test := range []struct {
		processes, callers, readers int
		hold                        time.Duration
	}{
		{1, 4, 0, short}, {2, 4, 0, short}, {2, 4, 2, short}, {1, 1, 0, short}, {2, 1, 0, short}, {1, 1, 1, short},
		{1, 4, 0, instant},
	} {
		t.Run(fmt.Sprintf("%d times %d with %d of %v", test.processes, test.callers, test.readers, test.hold), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				ours, theirs := slowWriter(t, w, test.processes, test.callers, test.readers, test.hold)
				all := ours + theirs
				if equal := all / (test.callers*test.processes + 1); 2*theirs < equal {
					t.Errorf("the peer had %d of %d turns, want half of %d at least", theirs, all, equal)
				}
				if possible := int(slowWriterTime / test.hold); test.hold == short && all < possible*7/10 {
					t.Errorf("%d turns of %v in %v", all, test.hold, slowWriterTime)
				}
			})
		})
	}
}

func slowPeerOfPermits(t *testing.T, w *world, k counted, processes, callers, permits int) {
	const length, hold = 2 * time.Second, 5 * time.Millisecond
	w.srv.Latency(100 * time.Microsecond)
	end := time.Now().Add(length)
	var mu sync.Mutex
	var ours, theirs int
	var wg sync.WaitGroup
	for range processes {
		c := w.client(lock.Config{})
		for range callers {
			wg.Go(func() {
				for time.Now().Before(end) {
					give := k.mustTake(t, c, 1)
					mu.Lock()
					ours++
					mu.Unlock()
					w.sleep(hold)
					give()
				}
			})
		}
	}
	events, leave := w.hear(t, semChannel)
	defer leave()
	for time.Now().Before(end) {
		w.sleep(300 * time.Microsecond) // a round trip, and what it does in between
		for w.srv.Do("DECRBY", "sem", "1").(int64) < 0 {
			w.srv.Do("INCRBY", "sem", "1")
			select {
			case <-events.Events():
				w.sleep(2 * time.Millisecond)
			case <-time.After(5 * time.Second):
				t.Error("the peer has waited for 5 s")
			}
		}
		theirs++
		w.sleep(hold)
		w.srv.Do("PUBLISH", semChannel, fmt.Sprint(w.srv.Do("INCRBY", "sem", "1")))
	}
	wg.Wait()
	all := ours + theirs
	if equal := all / (callers*processes + 1); 2*theirs < equal {
		t.Errorf("the peer had %d of %d turns, want half of %d at least", theirs, all, equal)
	}
	if possible := int(length/hold) * min(permits, callers*processes+1); all < possible*7/10 {
		t.Errorf("%d turns of %v in %v, with %d permits", all, hold, length, permits)
	}
	t.Logf("peer %d, others %d", theirs, ours)
	w.srv.Latency(0)
}

const slowWriterTime = 4 * time.Second

func slowWriter(t *testing.T, w *world, processes, callers, readers int, hold time.Duration) (ours, theirs int) {
	w.srv.Latency(100 * time.Microsecond)
	end := time.Now().Add(slowWriterTime)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range processes {
		c := w.client(lock.Config{})
		for i := range callers {
			h := lockOf(toWrite)
			if i < readers {
				h = toRead
			}
			wg.Go(func() {
				for time.Now().Before(end) {
					l, err := h(c).Lock(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					ours++
					mu.Unlock()
					w.sleep(hold)
					mustUnlock(t, l)
				}
			})
		}
	}
	events, leave := w.hear(t, jobReadWrite)
	defer leave()
	for time.Now().Before(end) {
		w.sleep(300 * time.Microsecond) // a round trip, and what it does in between
		for w.srv.Do("HSETNX", "job", "mode", "write") == int64(0) {
			select {
			case <-events.Events():
				w.sleep(2 * time.Millisecond)
			case <-time.After(5 * time.Second):
				t.Error("the peer has waited for 5 s")
			}
		}
		w.srv.Do("HSET", "job", "peer:1:write", "1")
		w.srv.Do("PEXPIRE", "job", "30000")
		theirs++
		w.sleep(hold)
		w.srv.Do("DEL", "job")
		w.srv.Do("PUBLISH", jobReadWrite, "1")
	}
	wg.Wait()
	w.srv.Latency(0)
	w.sleep(26 * time.Second)
	return ours, theirs
}

// slowPeer is a process with Redisson's protocol, whose callers have one subscription. It wakes one of them 2 ms after each message.
type slowPeer struct {
	*redisson
	woken chan struct{}
	close func()
}

func newSlowPeer(t *testing.T, w *world, late time.Duration) *slowPeer {
	events, leave := w.hear(t, jobChannel)
	p := &slowPeer{redisson: newRedisson(w), woken: make(chan struct{}, 100)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range events.Events() {
			w.sleep(late)
			select {
			case p.woken <- struct{}{}:
			default:
			}
		}
	})
	p.close = func() {
		leave()
		wg.Wait()
	}
	return p
}

// hold has one caller hold the lock for a while, unless the end comes first.
func (p *slowPeer) hold(t *testing.T, w *world, owner string, hold time.Duration, end time.Time) bool {
	if !p.wait(w, owner, end) {
		return false
	}
	w.sleep(hold)
	p.release(w)
	return true
}

// wait has one caller take the lock, unless the end comes first.
func (p *slowPeer) wait(w *world, owner string, end time.Time) bool {
	w.sleep(300 * time.Microsecond) // a round trip, and what it does in between
	for !p.lock("job", owner, time.Minute) {
		select {
		case <-p.woken:
		case <-time.After(time.Until(end)):
			return false
		}
	}
	return true
}

func (p *slowPeer) release(w *world) {
	w.srv.Do("DEL", "job")
	w.srv.Do("PUBLISH", jobChannel, "0")
}

// waitAt has one caller take the lock at one server after the other, unless the end comes first.
func (f fleet) waitAt(peers []*slowPeer, owner string, end time.Time) bool {
	for k, p := range peers {
		if !p.wait(f[k], owner, end) {
			return false
		}
	}
	return time.Now().Before(end)
}
