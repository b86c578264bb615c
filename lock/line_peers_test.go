package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/pubsub"
)

// slowPeer is a process with Redisson's protocol, whose callers have one subscription. It wakes one of them 2 ms after each message.
type slowPeer struct {
	*redisson
	woken chan struct{}
	close func()
}

func newSlowPeer(t *testing.T, w *world, late time.Duration) *slowPeer {
	pool := w.pool(conn.Config{})
	sub := pubsub.New(pool, pubsub.Config{})
	events, err := sub.Subscribe(t.Context(), jobChannel)
	if err != nil {
		t.Fatal(err)
	}
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
		_ = sub.Close()
		_ = pool.Close()
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

// holdAgain has a caller hold the lock for a while, again and again until the end, and counts that. mu guards the number.
func (w *world) holdAgain(t *testing.T, c *lock.Client, hold time.Duration, end time.Time, mu *sync.Mutex, number *int) {
	for time.Now().Before(end) {
		l := mustLock(t, c, "job")
		mu.Lock()
		*number++
		mu.Unlock()
		w.sleep(hold)
		mustUnlock(t, l)
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

// Callers of Redisson's RedLock wait at the first server, and then take one server after the other. Beside as many callers of a
// process neither side has less than a tenth of the turns, near to the servers and far away.
func TestRedlockBesideRedisson(t *testing.T) {
	t.Parallel()
	const callers, hold = 4, 5 * time.Millisecond
	for _, test := range []struct{ late, latency time.Duration }{
		{2 * time.Millisecond, 100 * time.Microsecond},
		{2 * time.Millisecond, 300 * time.Microsecond},
		{300 * time.Microsecond, 300 * time.Microsecond},
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
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			for range callers {
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
			t.Logf("Redisson's clients %v late, servers %v away: they had %d turns, and ours %d", test.late, test.latency, theirs, ours)
			if all := ours + theirs; all < 500 || 10*ours < all || 10*theirs < all {
				t.Errorf("of %d turns Redisson's callers had %d, and ours %d", all, theirs, ours)
			}
		})
	}
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
