package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/pubsub"
)

const jobLine = "lockwire_line:{job}"

// lockOf is a lock of a client.
type lockOf func(c *lock.Client) goldenLock

func toLock(c *lock.Client) goldenLock { return c.Reentrant("job") }

// waits takes the lock in a goroutine, and returns when the call waits, or has the lock.
func (of lockOf) waits(t *testing.T, ctx context.Context, c *lock.Client) (got <-chan *lock.Lease) {
	leases := make(chan *lock.Lease, 1)
	go func() {
		lease, err := of(c).Lock(ctx)
		if err != nil && ctx.Err() == nil {
			t.Errorf("Lock() = %v", err)
		}
		leases <- lease
	}()
	synctest.Wait()
	return leases
}

// asyncLock is waits for the reentrant lock.
func asyncLock(t *testing.T, ctx context.Context, c *lock.Client) <-chan *lock.Lease {
	return lockOf(toLock).waits(t, ctx, c)
}

// acquireScripts has the acquire scripts of all kinds, by digest and by source.
var acquireScripts = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, scripts := range kinds.All() {
		if s := scripts["acquire"]; s != nil {
			all[s.Digest()], all[s.Source()] = true, true
		}
	}
	return all
})

// isAcquire reports whether cmd runs the acquire script of any kind.
func isAcquire(cmd fakeredis.Cmd) bool { return len(cmd.Args) > 1 && acquireScripts()[cmd.Args[1]] }

// asked returns how many acquires the server has had.
func (w *world) asked() (n int) {
	for _, cmd := range w.srv.Log() {
		if isAcquire(cmd) {
			n++
		}
	}
	return n
}

// acquiresOf intercepts the acquires of a client.
func (w *world) acquiresOf(c *lock.Client, action fakeredis.Action) {
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if isAcquire(cmd) && slices.ContainsFunc(cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, c.ID()) }) {
			return action
		}
		return fakeredis.Run()
	})
}

// hangs has the acquires of a client arrive when the returned function is called.
func (w *world) hangs(c *lock.Client) (arrive func()) {
	gate := make(chan struct{})
	w.acquiresOf(c, fakeredis.Wait(gate, fakeredis.Run()))
	return func() { close(gate); w.srv.Intercept(nil) }
}

// Processes that wait get the lock in the order of their coming, and a release makes no more than two of them ask.
func TestLineOfProcesses(t *testing.T) {
	for name, of := range map[string]lockOf{"reentrant": toLock, "write": toWrite, "group": toValues("a", "b")} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) { w.servesInOrder(t, of) })
		})
	}
}

func (w *world) servesInOrder(t *testing.T, of lockOf) {
	const processes = 30
	take := func(c *lock.Client) *lock.Lease {
		lease, err := of(c).Lock(t.Context())
		if err != nil {
			t.Fatalf("Lock() = %v", err)
		}
		return lease
	}
	lease := take(w.client(lock.Config{}))
	var mu sync.Mutex
	var served []int
	var wg sync.WaitGroup
	for i := range processes {
		c := w.client(lock.Config{})
		c.OnlyWoken()
		wg.Go(func() {
			l := take(c)
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			w.sleep(5 * time.Millisecond)
			mustUnlock(t, l)
		})
		w.sleep(10 * time.Millisecond)
	}
	w.srv.ClearLog()
	begin := time.Now()
	mustUnlock(t, lease)
	wg.Wait()
	if !slices.IsSorted(served) || len(served) != processes {
		t.Errorf("served in the order %v", served)
	}
	if took := time.Since(begin); took > processes*6*time.Millisecond {
		t.Errorf("%d turns of 5 ms took %v", processes, took)
	}
	if asked := w.asked(); asked > 2*processes {
		t.Errorf("%d processes asked %d times, want twice each at most", processes, asked)
	}
	w.sleep(time.Second)
	w.free()
}

// One who is called and does not come costs the others its turn, once.
func TestHungProcessLosesItsTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		hung, other := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, w.client(lock.Config{}), "job")
		first := asyncLock(t, t.Context(), hung)
		w.sleep(time.Millisecond)
		second := asyncLock(t, t.Context(), other)
		arrive := w.hangs(hung)
		begin := time.Now()
		mustUnlock(t, lease)
		got := <-second
		if took := time.Since(begin); took < 50*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("the second has the lock after %v, want 100 ms", took)
		}
		arrive()
		w.sleep(time.Second)
		mustUnlock(t, got)
		mustUnlock(t, <-first)
		w.sleep(time.Second)
		w.free()
	})
}

// A client that knows Redisson's channel only is told of the lock beside a process that is called, and hangs: Redisson's waiters ask after a
// message, or when the lease that they have seen ends.
func TestHungProcessBesideVisitors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		told, leave := w.visits(t, jobChannel)
		lease := mustLock(t, w.client(lock.Config{}), "job", lock.For(time.Hour))
		hung := w.client(lock.Config{})
		first := asyncLock(t, t.Context(), hung)
		arrive := w.hangs(hung)
		mustUnlock(t, lease)
		synctest.Wait()
		if got := told(); got != "[0]" {
			t.Errorf("the visitor is told %v, want [0]", got)
		}
		leave()
		arrive()
		mustUnlock(t, <-first)
		w.sleep(26 * time.Second)
		w.free()
	})
}

// hear subscribes to channels over a connection of its own, until leave.
func (w *world) hear(t *testing.T, channels ...string) (events *pubsub.Subscription, leave func()) {
	t.Helper()
	pool := w.pool(conn.Config{})
	sub := pubsub.New(pool, pubsub.Config{})
	events, err := sub.Subscribe(t.Context(), channels...)
	if err != nil {
		t.Fatal(err)
	}
	return events, func() {
		_ = sub.Close()
		_ = pool.Close()
	}
}

// visits subscribes to a channel of Redisson's. told returns the messages since its last call.
func (w *world) visits(t *testing.T, channel string) (told func() string, leave func()) {
	events, leave := w.hear(t, channel)
	told = func() string {
		list := []string{}
		for len(events.Events()) > 0 {
			if e := <-events.Events(); e.Kind == pubsub.Message {
				list = append(list, e.Payload)
			}
		}
		return fmt.Sprint(list)
	}
	return told, leave
}

// Places of processes that are gone cost nothing.
func TestDeadPlacesArePassedOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustLock(t, w.client(lock.Config{}), "job")
		for i := range 500 {
			w.srv.Do("ZADD", jobLine, fmt.Sprint(i+1), fmt.Sprintf("gone%d:1", i))
		}
		next := asyncLock(t, t.Context(), w.client(lock.Config{}))
		begin := time.Now()
		mustUnlock(t, lease)
		mustUnlock(t, <-next)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the living one has the lock after %v, want at once", took)
		}
		w.sleep(time.Second)
		w.free()
	})
}

// A waiter that leaves, before or after it was called, leaves no place behind and passes its turn on.
func TestCalledWaiterLeaves(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 12 * time.Millisecond, 17 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				lease := mustLock(t, w.client(lock.Config{}), "job")
				ctx, cancel := context.WithCancel(t.Context())
				leaver, stayer := w.client(lock.Config{}), w.client(lock.Config{})
				stayer.OnlyWoken()
				gone := asyncLock(t, ctx, leaver)
				w.sleep(time.Millisecond)
				got := asyncLock(t, t.Context(), stayer)
				w.leavesWhenCalled(t, lease, after, cancel, gone, got)
				w.sleep(latchLife)
				if w.srv.Do("EXISTS", jobLine) != int64(0) {
					t.Error("the line is left")
				}
				w.free()
			})
		})
	}
}

// leavesWhenCalled releases lease, and cancels the wait for gone so long after: the next waiter is called in its place.
func (w *world) leavesWhenCalled(t *testing.T, lease *lock.Lease, after time.Duration, cancel func(), gone, got <-chan *lock.Lease) {
	w.srv.Latency(5 * time.Millisecond)
	released := make(chan error)
	go func() { released <- lease.Unlock(context.Background()) }()
	w.sleep(after) // the release is on its way, then the call, then the acquire
	cancel()
	if err := <-released; err != nil {
		t.Errorf("Unlock() = %v", err)
	}
	if l := <-gone; l != nil {
		mustUnlock(t, l)
	}
	begin := time.Now()
	mustUnlock(t, <-got)
	if took := time.Since(begin); took > 60*time.Millisecond {
		t.Errorf("the next has the lock after %v", took)
	}
	w.srv.Latency(0)
}

// TryLock does not take a lock for which another process was called. Its own process may.
func TestTryLockLeavesTheLockToTheCalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		waiting, passing := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, w.client(lock.Config{}), "job")
		got := asyncLock(t, t.Context(), waiting)
		arrive := w.hangs(waiting)
		mustUnlock(t, lease)
		if _, err := passing.Reentrant("job").TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v, want ErrNotAcquired", err)
		}
		arrive()
		mustUnlock(t, <-got)
		w.sleep(time.Second)
		w.free()
	})
}

// A place ends by itself 25 s after its process has asked for the last time.
func TestPlacesExpire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustLock(t, w.client(lock.Config{}), "job")
		c := w.client(lock.Config{})
		got := asyncLock(t, t.Context(), c)
		for range 10 {
			w.sleep(20 * time.Second)
			if left := w.ttl(jobLine); left < 10*time.Second || left > 25*time.Second {
				t.Errorf("the line lasts %v while one waits", left)
			}
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		w.sleep(time.Second)
		w.free()
	})
}

// A waiter that leaves while visitors have their turn does not end the turn.
func TestLeavingEndsNoTurnOfVisitors(t *testing.T) {
	for name, of := range map[string]lockOf{"reentrant": toLock, "write": toWrite} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				events, leave := w.hear(t, jobChannel, jobReadWrite)
				defer leave()
				first := <-of.waits(t, t.Context(), w.client(lock.Config{}))
				second := of.waits(t, t.Context(), w.client(lock.Config{}))
				w.sleep(time.Second)
				mustUnlock(t, first) // visitors take their place behind the second
				lease := <-second
				w.sleep(time.Second)
				next := of.waits(t, t.Context(), w.client(lock.Config{}))
				ctx, cancel := context.WithCancel(t.Context())
				of.waits(t, ctx, w.client(lock.Config{}))
				w.sleep(time.Second)
				mustUnlock(t, lease)
				<-events.Events()
				cancel()
				w.sleep(3 * time.Millisecond)
				if w.srv.Do("EXISTS", "job") != int64(0) {
					t.Error("the lock was taken in the turn of visitors")
				}
				mustUnlock(t, <-next)
				w.sleep(time.Second)
			})
		})
	}
}

// Processes of one caller each go on in turn after the server's clock was set back, though the places taken before are later than all others.
func TestLineAfterAClockSetBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		turns := w.takeTurns(t, 3, 3*time.Second, 5*time.Millisecond, time.Hour)
		all := turns[0] + turns[1] + turns[2]
		for i, n := range turns {
			if 4*n < all {
				t.Errorf("process %d had %d of %d turns, want a quarter at least", i, n, all)
			}
		}
		w.sleep(time.Second)
	})
}

// A client that listens to the lock's channel, and never asks for the lock, costs about half of the time at most.
func TestListenerThatNeverAsks(t *testing.T) {
	for _, processes := range []int{2, 3} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			alone := w.takeTurns(t, processes, time.Second, time.Millisecond, 0)
			_, leave := w.hear(t, jobChannel)
			defer leave()
			beside := w.takeTurns(t, processes, time.Second, time.Millisecond, 0)
			for i, n := range beside {
				if 3*n < alone[i] {
					t.Errorf("%d processes had %v turns, and %v beside the listener, want a third at least", processes, alone, beside)
				}
			}
			t.Logf("%v turns, and %v beside the listener", alone, beside)
			w.sleep(26 * time.Second)
		})
	}
}

// Beside a client that listens to the lock's channel and never asks, TryLock may find the lock reserved after each release, as
// OPERATIONS.md says; beside one that listens to a pattern it never does.
func TestTryLockBesideListeners(t *testing.T) {
	for how, subscribe := range map[string]func(context.Context, *pubsub.Subscriber) error{
		"channel": func(ctx context.Context, c *pubsub.Subscriber) error {
			_, err := c.Subscribe(ctx, jobChannel)
			return err
		},
		"pattern": func(ctx context.Context, c *pubsub.Subscriber) error {
			_, err := c.PSubscribe(ctx, "redisson_lock__channel:*")
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				pool := w.pool(conn.Config{})
				defer pool.Close()
				sub := pubsub.New(pool, pubsub.Config{})
				defer sub.Close()
				if err := subscribe(t.Context(), sub); err != nil {
					t.Fatal(err)
				}
				c, refused := w.client(lock.Config{}), 0
				for range 500 {
					if l, err := c.Reentrant("job").TryLock(t.Context()); err == nil {
						mustUnlock(t, l)
					} else {
						wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
						refused++
					}
					w.sleep(20 * time.Millisecond)
				}
				if how == "pattern" && refused > 0 || how == "channel" && (refused == 0 || refused > 250) {
					t.Errorf("%d of 500 were refused", refused)
				}
				t.Logf("%d of 500 were refused", refused)
			})
		})
	}
}

// takeTurns has processes of one caller each hold the lock, again and again, and returns how often each had it. After a third of the time
// the server's clock is set back.
func (w *world) takeTurns(t *testing.T, processes int, length, hold, back time.Duration) []int {
	w.srv.Latency(50 * time.Microsecond)
	defer w.srv.Latency(0)
	end, turns := time.Now().Add(length), make([]int, processes)
	time.AfterFunc(length/3, func() { w.srv.Jump(-back) })
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range turns {
		c := w.client(lock.Config{})
		wg.Go(func() { w.holdAgain(t, c, hold, end, &mu, &turns[i]) })
	}
	wg.Wait()
	return turns
}

// A visitor that takes and releases the lock many times in its turn, and leaves, delays the waiter to the end of the turn only.
func TestBusyVisitorThatLeaves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		c := w.client(lock.Config{})
		_, leave := w.hear(t, jobChannel)
		defer leave()
		mustUnlock(t, mustLock(t, c, "job")) // visitors have their turn
		begin := time.Now()
		got := asyncLock(t, t.Context(), c)
		for range 12 {
			w.sleep(500 * time.Microsecond)
			w.srv.Do("HSET", "job", "peer:1", "1")
			w.srv.Do("DEL", "job")
			w.srv.Do("PUBLISH", jobChannel, "0")
		}
		lease := <-got
		if took := time.Since(begin); took > 70*time.Millisecond {
			t.Errorf("the waiter has the lock after %v", took)
		}
		mustUnlock(t, lease)
		w.srv.Latency(0)
		w.sleep(time.Second)
	})
}

// With places on the server for each process, four of ten callers each get the same share, although two of them are further
// away.
func TestFarProcessesHaveTheirShare(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(50 * time.Microsecond)
		clients := []*lock.Client{w.client(lock.Config{}), w.client(lock.Config{}), w.client(lock.Config{}), w.client(lock.Config{})}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			for _, c := range clients[2:] {
				if slices.ContainsFunc(cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, c.ID()) }) {
					return fakeredis.Delay(500*time.Microsecond, fakeredis.Run())
				}
			}
			return fakeredis.Run()
		})
		end := time.Now().Add(10 * time.Second)
		turns := make([]int, len(clients))
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, c := range clients {
			for range 10 {
				wg.Go(func() {
					for time.Now().Before(end) {
						l := mustLock(t, c, "job")
						mu.Lock()
						turns[i]++
						mu.Unlock()
						w.sleep(time.Millisecond)
						mustUnlock(t, l)
					}
				})
			}
		}
		wg.Wait()
		all := turns[0] + turns[1] + turns[2] + turns[3]
		for i, n := range turns {
			if n*5 < all {
				t.Errorf("process %d had %d of %d turns, want a fifth at least", i, n, all)
			}
		}
		w.srv.Intercept(nil)
		w.sleep(time.Second)
		w.free()
	})
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
