package lock_test

import (
	"context"
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
)

const semLine, semChannel = "lockwire_line:{sem}", "redisson_sc:{sem}"

// counted is a kind of lock that is a number of permits, all named sem.
type counted struct {
	name string
	set  func(ctx context.Context, c *lock.Client, n int) (bool, error)
	add  func(ctx context.Context, c *lock.Client, n int) error
	take func(ctx context.Context, c *lock.Client, n int) (give func(context.Context) error, err error)
}

var countedKinds = []counted{{
	"Semaphore",
	func(ctx context.Context, c *lock.Client, n int) (bool, error) {
		return c.Semaphore("sem").TrySetPermits(ctx, n)
	},
	func(ctx context.Context, c *lock.Client, n int) error { return c.Semaphore("sem").AddPermits(ctx, n) },
	func(ctx context.Context, c *lock.Client, n int) (func(context.Context) error, error) {
		s := c.Semaphore("sem")
		return func(ctx context.Context) error { return s.Release(ctx, n) }, s.Acquire(ctx, n)
	},
}, {
	"PermitSemaphore",
	func(ctx context.Context, c *lock.Client, n int) (bool, error) {
		return c.PermitSemaphore("sem").TrySetPermits(ctx, n)
	},
	func(ctx context.Context, c *lock.Client, n int) error {
		return c.PermitSemaphore("sem").AddPermits(ctx, n)
	},
	func(ctx context.Context, c *lock.Client, n int) (func(context.Context) error, error) {
		l, err := c.PermitSemaphore("sem").AcquireMany(ctx, n)
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	},
}}

// withPermits runs test in virtual time for each kind, with n permits.
func withPermits(t *testing.T, n int, test func(t *testing.T, w *world, k counted)) {
	for _, k := range countedKinds {
		t.Run(k.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				if set, err := k.set(t.Context(), w.client(lock.Config{}), n); err != nil || !set {
					t.Fatalf("TrySetPermits(%d) = %v, %v", n, set, err)
				}
				test(t, w, k)
				w.srv.Intercept(nil)
				w.sleep(26 * time.Second) // a turn of clients without a line may be the last member
				if w.srv.Do("EXISTS", semLine) != int64(0) {
					t.Error("the line is left")
				}
				w.srv.Do("DEL", "sem")
				w.free()
			})
		})
	}
}

// mustTake takes n permits.
func (k counted) mustTake(t *testing.T, c *lock.Client, n int) (give func()) {
	t.Helper()
	release, err := k.take(context.Background(), c, n)
	if err != nil {
		t.Errorf("Acquire(%d) = %v", n, err)
		return func() {}
	}
	return func() {
		if err := release(context.Background()); err != nil {
			t.Errorf("Release(%d) = %v", n, err)
		}
	}
}

// waiting takes n permits in a goroutine, and returns when the call waits.
func (k counted) waiting(t *testing.T, c *lock.Client, n int) (got <-chan func()) {
	taken := make(chan func(), 1)
	go func() { taken <- k.mustTake(t, c, n) }()
	synctest.Wait()
	return taken
}

// Processes get permits in the order of their coming, several at once, and a release makes no more than two of them ask.
func TestLineForPermits(t *testing.T) {
	const processes, permits = 30, 3
	withPermits(t, permits, func(t *testing.T, w *world, k counted) {
		give := k.mustTake(t, w.client(lock.Config{}), permits)
		var mu sync.Mutex
		var served []int
		var wg sync.WaitGroup
		for i := range processes {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			wg.Go(func() {
				give := k.mustTake(t, c, 1)
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				w.sleep(time.Duration(5+i%permits) * time.Millisecond)
				give()
			})
			w.sleep(10 * time.Millisecond)
		}
		w.srv.ClearLog()
		begin := time.Now()
		give()
		wg.Wait()
		inOrder := slices.Clone(served)
		slices.Sort(inOrder)
		for i, n := range served { // those who are served at the same time may swap places
			if len(served) != processes || n < inOrder[i]-permits || n > inOrder[i]+permits {
				t.Fatalf("served in the order %v", served)
			}
		}
		if took := time.Since(begin); took > processes/permits*8*time.Millisecond {
			t.Errorf("%d turns of 5 to 7 ms, %d at once, took %v", processes, permits, took)
		}
		if asked := w.asked(); asked > 5*processes/2 {
			t.Errorf("%d processes asked %d times, want twice each", processes, asked)
		}
	})
}

// Many permits that come at once reach as many processes, and wake no others but some that watch.
func TestManyPermitsAtOnce(t *testing.T) {
	const processes, permits = 40, 20
	withPermits(t, 0, func(t *testing.T, w *world, k counted) {
		var got []<-chan func()
		for range processes {
			c := w.client(lock.Config{})
			c.OnlyWoken()
			got = append(got, k.waiting(t, c, 1))
			w.sleep(time.Millisecond)
		}
		w.srv.ClearLog()
		wantOK(t, "AddPermits", k.add(t.Context(), w.client(lock.Config{}), permits))
		w.sleep(200 * time.Millisecond)
		if asked := w.asked(); asked > 2*permits+2 {
			t.Errorf("%d permits made processes ask %d times", permits, asked)
		}
		for i, got := range got {
			if had := len(got) == 1; had != (i < permits) {
				t.Errorf("process %d has a permit: %v", i, had)
			}
		}
		for _, got := range got {
			(<-got)()
		}
	})
}

// A process that waits for more permits than are free keeps those behind it out for two seconds, and then lets them in for two: it does not
// starve, and they do not wait for permits that never come.
func TestLineBehindOneForManyPermits(t *testing.T) {
	withPermits(t, 4, func(t *testing.T, w *world, k counted) {
		holder := w.client(lock.Config{})
		one, three := k.mustTake(t, holder, 1), k.mustTake(t, holder, 3)
		many := k.waiting(t, w.client(lock.Config{}), 3)
		w.sleep(time.Millisecond)
		single := k.waiting(t, w.client(lock.Config{}), 1)
		one()
		w.sleep(1900 * time.Millisecond)
		if len(single) != 0 {
			t.Error("within two seconds a permit went to the process behind")
		}
		w.sleep(700 * time.Millisecond) // it asks each half second
		if len(single) != 1 {
			t.Fatal("no permit went to the process behind in the time in which others may come in")
		}
		w.sleep(2 * time.Second) // again others are kept out
		second := k.waiting(t, w.client(lock.Config{}), 1)
		(<-single)()
		three()
		synctest.Wait()
		if len(many) != 1 || len(second) != 1 {
			t.Errorf("of four permits three went to %d, and one to %d", len(many), len(second))
		}
		(<-many)()
		(<-second)()
	})
}

// Processes that take one permit each, so that two are never free at once, do not keep off one that waits for two.
func TestNobodyStarvesForTwoPermits(t *testing.T) {
	withPermits(t, 2, func(t *testing.T, w *world, k counted) {
		stop := make(chan struct{})
		var others sync.WaitGroup
		for i := range 4 {
			c := w.client(lock.Config{})
			others.Go(func() {
				w.sleep(time.Duration(i) * 5 * time.Millisecond)
				for {
					select {
					case <-stop:
						return
					default:
					}
					give := k.mustTake(t, c, 1)
					w.sleep(10 * time.Millisecond)
					give()
				}
			})
		}
		w.sleep(100 * time.Millisecond)
		c := w.client(lock.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		for i := range 20 {
			give, err := k.take(ctx, c, 2)
			if err != nil {
				t.Errorf("the acquire %d of two permits: %v", i, err)
				break
			}
			wantOK(t, "Release", give(t.Context()))
		}
		cancel()
		close(stop)
		others.Wait()
	})
}

// One who is called and does not come costs the others its turn, and only the permit that it was called for.
func TestHungProcessAndPermits(t *testing.T) {
	withPermits(t, 2, func(t *testing.T, w *world, k counted) {
		holder := w.client(lock.Config{})
		one, two := k.mustTake(t, holder, 1), k.mustTake(t, holder, 1)
		hung := w.client(lock.Config{})
		first := k.waiting(t, hung, 1)
		w.sleep(time.Millisecond)
		second := k.waiting(t, w.client(lock.Config{}), 1)
		w.sleep(time.Millisecond)
		third := k.waiting(t, w.client(lock.Config{}), 1)
		arrive := w.hangs(hung)
		one()
		synctest.Wait()
		if len(second) != 0 {
			t.Error("the second has the permit for which the first was called")
		}
		begin := time.Now()
		two()
		give := <-second
		if took := time.Since(begin); took != 0 {
			t.Errorf("the second has the other permit after %v, want at once", took)
		}
		(<-third)()
		if took := time.Since(begin); took < 50*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("the third has the permit of the first after %v, want 100 ms", took)
		}
		arrive()
		(<-first)()
		give()
	})
}

// Redisson's waiters for permits ask after a message only. So they are told beside a process that is called, also if another process watches: both
// may hang.
func TestHungProcessesAndVisitorsForPermits(t *testing.T) {
	withPermits(t, 1, func(t *testing.T, w *world, k counted) {
		told, leave := w.visits(t, semChannel)
		give := k.mustTake(t, w.client(lock.Config{}), 1)
		first := k.waiting(t, w.client(lock.Config{}), 1)
		w.sleep(time.Millisecond)
		second := k.waiting(t, w.client(lock.Config{}), 1)
		gate := make(chan struct{})
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isAcquire(cmd) {
				return fakeredis.Wait(gate, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		give()
		synctest.Wait()
		if got := told(); got != "[1]" {
			t.Errorf("the visitor is told %v, want [1]", got)
		}
		leave()
		close(gate)
		w.srv.Intercept(nil)
		(<-first)()
		(<-second)()
	})
}

// Nobody may have been told of a free permit but hung processes: those who wait look by themselves, soon.
func TestPermitOfWhichNobodyTells(t *testing.T) {
	withPermits(t, 1, func(t *testing.T, w *world, k counted) {
		give := k.mustTake(t, w.client(lock.Config{}), 1)
		got := k.waiting(t, w.client(lock.Config{}), 1)
		w.sleep(100 * time.Millisecond)
		w.srv.Do("INCRBY", "sem", "1")
		begin := time.Now()
		(<-got)()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the waiter has the permit after %v, want a second", took)
		}
		give()
	})
}

// A waiter that leaves, before or after it was called, leaves no place behind and passes its turn on.
func TestCalledWaiterForPermitsLeaves(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 12 * time.Millisecond, 17 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			withPermits(t, 1, func(t *testing.T, w *world, k counted) {
				give := k.mustTake(t, w.client(lock.Config{}), 1)
				ctx, cancel := context.WithCancel(t.Context())
				leaver, stayer := w.client(lock.Config{}), w.client(lock.Config{})
				stayer.OnlyWoken()
				gone := make(chan func(context.Context) error, 1)
				go func() {
					release, err := k.take(ctx, leaver, 1)
					if err != nil {
						release = nil
					}
					gone <- release
				}()
				synctest.Wait()
				w.sleep(time.Millisecond)
				got := k.waiting(t, stayer, 1)
				w.srv.Latency(5 * time.Millisecond)
				released := make(chan struct{})
				go func() { give(); close(released) }()
				w.sleep(after) // the release is on its way, then the call, then the acquire
				cancel()
				<-released
				if release := <-gone; release != nil {
					wantOK(t, "Release", release(context.Background()))
				}
				begin := time.Now()
				(<-got)()
				if took := time.Since(begin); took > 60*time.Millisecond {
					t.Errorf("the next has the permit after %v", took)
				}
				w.srv.Latency(0)
			})
		})
	}
}

// A client of Redisson wakes as many of its callers as a message says. So a release within a turn of such clients is told, too.
func TestPermitsGivenBackInAVisitAreTold(t *testing.T) {
	withPermits(t, 3, func(t *testing.T, w *world, k counted) {
		c := w.client(lock.Config{})
		events, leave := w.hear(t, semChannel)
		defer leave()
		gives := []func(){k.mustTake(t, c, 1), k.mustTake(t, c, 1), k.mustTake(t, c, 1)}
		for i, give := range gives {
			give()
			select {
			case e := <-events.Events():
				if want := fmt.Sprint(i + 1); string(e.Payload) != want {
					t.Errorf("release %d: the message %q, want %q", i+1, e.Payload, want)
				}
			case <-time.After(time.Second):
				t.Errorf("release %d is not told", i+1)
			}
		}
	})
}

// While a permit is reserved for a process that was called, TryAcquire of another finds none.
func TestTryAcquireLeavesThePermitToTheCalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		waiting, passing := w.client(lock.Config{}), w.client(lock.Config{})
		s := setUp(t, passing, 2)
		wantOK(t, "Acquire", s.Acquire(t.Context(), 2))
		got := countedKinds[0].waiting(t, waiting, 1)
		arrive := w.hangs(waiting)
		wantOK(t, "Release", s.Release(t.Context(), 1))
		wantErr(t, "TryAcquire(1)", s.TryAcquire(t.Context(), 1), lock.ErrNotAcquired)
		wantOK(t, "Release", s.Release(t.Context(), 1))
		wantErr(t, "TryAcquire(2)", s.TryAcquire(t.Context(), 2), lock.ErrNotAcquired)
		wantOK(t, "TryAcquire(1)", s.TryAcquire(t.Context(), 1))
		arrive()
		(<-got)()
		w.settled("sem")
		if keys := fmt.Sprint(w.srv.Do("KEYS", "*")); strings.Contains(keys, "lockwire_line") {
			t.Errorf("%v are left", keys)
		}
	})
}

// TryAcquire takes no permit for which a process at the head of the line waits, until that lets others in.
func TestTryAcquireBesideOneForManyPermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder := w.client(lock.Config{})
		s := setUp(t, holder, 2)
		wantOK(t, "Acquire", s.Acquire(t.Context(), 2))
		many := countedKinds[0].waiting(t, w.client(lock.Config{}), 2)
		wantOK(t, "Release", s.Release(t.Context(), 1))
		synctest.Wait()
		wantErr(t, "TryAcquire(1)", s.TryAcquire(t.Context(), 1), lock.ErrNotAcquired)
		w.sleep(2600 * time.Millisecond)
		wantOK(t, "TryAcquire(1) later", s.TryAcquire(t.Context(), 1))
		wantOK(t, "Release", s.Release(t.Context(), 2))
		(<-many)()
		w.settled("sem")
	})
}

// Of processes that want several permits each, or different numbers, only one for which there are enough is called.
func TestProcessesWithDifferentNumbersOfPermits(t *testing.T) {
	for name, wants := range map[string][]int{"two each": {2}, "one or two": {1, 2}, "one to eight": {1, 2, 3, 4, 5, 6, 7, 8}} {
		t.Run(name, func(t *testing.T) {
			withPermits(t, 8, func(t *testing.T, w *world, k counted) {
				const processes, rounds = 24, 3
				w.srv.ClearLog()
				var callers sync.WaitGroup
				for i := range processes {
					c := w.client(lock.Config{})
					callers.Go(func() {
						for range rounds {
							give := k.mustTake(t, c, wants[i%len(wants)])
							w.sleep(5 * time.Millisecond)
							give()
						}
					})
				}
				callers.Wait()
				// 3.3 with some variation; more than 4 if a turn reserved one permit whatever the place wants.
				if each := float64(w.asked()) / (processes * rounds); each > 4 {
					t.Errorf("%.2f acquires were sent for each granted, want 4 at most", each)
				}
			})
		})
	}
}

// A place says how many permits the caller in front wants: the next caller of the process may want another number.
func TestPlaceOfTheNextCallerForPermits(t *testing.T) {
	withPermits(t, 4, func(t *testing.T, w *world, k counted) {
		give := k.mustTake(t, w.client(lock.Config{}), 4)
		c := w.client(lock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := k.take(ctx, c, 3)
			left <- err
		}()
		w.sleep(time.Millisecond)
		one := k.waiting(t, c, 1)
		w.sleep(time.Millisecond)
		cancel()
		wantErr(t, "of three permits, take", <-left, lock.ErrNotAcquired)
		w.sleep(time.Millisecond)
		if line := fmt.Sprint(w.srv.Do("ZRANGE", semLine, "0", "-1")); strings.Contains(line, "=") {
			t.Errorf("the line is %v, with a place for three permits", line)
		}
		give()
		(<-one)()
	})
}

// A process at the head of the line that hangs, and waits for more permits than are free, loses its place: those behind it have equal shares.
func TestHungProcessForManyPermits(t *testing.T) {
	withPermits(t, 3, func(t *testing.T, w *world, k counted) {
		holder := w.client(lock.Config{})
		long, one := k.mustTake(t, holder, 2), k.mustTake(t, holder, 1)
		first := k.waiting(t, w.client(lock.Config{}), 1) // in front of the hung one, which is not next therefore
		w.sleep(time.Millisecond)
		hung := w.clientOn(conn.Config{Timeout: time.Hour}, lock.Config{})
		many := k.waiting(t, hung, 2)
		arrive := w.hangs(hung)
		const processes = 4
		var served [processes]int
		end := time.Now().Add(5 * time.Second)
		var all sync.WaitGroup
		for i := range processes {
			c := w.client(lock.Config{})
			all.Go(func() {
				for time.Now().Before(end) {
					give := k.mustTake(t, c, 1)
					served[i]++
					w.sleep(5 * time.Millisecond)
					give()
				}
			})
		}
		w.sleep(time.Millisecond)
		one()
		(<-first)()
		all.Wait()
		if least := slices.Min(served[:]); least < 100 {
			t.Errorf("of one permit the processes had %v turns", served)
		}
		arrive()
		long()
		(<-many)()
	})
}

// Visitors hear of free permits each time that the process at the head of the line, for which there are too few, lets others in.
func TestVisitorsBesideOneForManyPermits(t *testing.T) {
	withPermits(t, 2, func(t *testing.T, w *world, k counted) {
		holder := w.client(lock.Config{})
		long, one := k.mustTake(t, holder, 1), k.mustTake(t, holder, 1)
		told, leave := w.visits(t, semChannel)
		many := k.waiting(t, w.client(lock.Config{}), 2)
		one()
		for i, seconds := range []time.Duration{4, 8, 16} {
			w.sleep(seconds * time.Second)
			if news := told(); news == "[]" {
				t.Errorf("in the time %d in which others are let in visitors hear nothing", i)
			}
		}
		leave()
		long()
		(<-many)()
	})
}

// When the process at the head lets others in, those behind it that also wait for too many are passed over, and one that hangs delays nobody.
func TestLetInBehindOthersForManyPermits(t *testing.T) {
	withPermits(t, 3, func(t *testing.T, w *world, k counted) {
		const many = 20
		holder := w.client(lock.Config{})
		long, one := k.mustTake(t, holder, 2), k.mustTake(t, holder, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		arrive := func() {}
		for i := range many {
			c := w.clientOn(conn.Config{Timeout: time.Hour}, lock.Config{})
			waiting.Go(func() {
				_, err := k.take(ctx, c, 2+min(i, 1))
				wantErr(t, "of many permits, take", err, lock.ErrNotAcquired)
			})
			w.sleep(time.Millisecond)
			if i == 1 {
				arrive = w.hangs(c)
			}
		}
		single := k.waiting(t, w.client(lock.Config{}), 1)
		one()
		w.sleep(1900 * time.Millisecond)
		w.srv.ClearLog()
		w.sleep(300 * time.Millisecond)
		if len(single) != 1 {
			t.Error("the process that wants one permit has none after 2.2 s")
		}
		if asked := w.asked(); asked > many/2 {
			t.Errorf("%d acquires were sent", asked)
		}
		(<-single)()
		arrive()
		cancel()
		waiting.Wait()
		long()
	})
}

// A TryAcquire that is refused ends no turn of its own process.
func TestRefusedTryAcquireBesideTheCalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, c, other := w.client(lock.Config{}), w.client(lock.Config{}), w.client(lock.Config{})
		s := setUp(t, holder, 2)
		wantOK(t, "Acquire", s.Acquire(t.Context(), 2))
		first := countedKinds[0].waiting(t, c, 1)
		w.sleep(time.Millisecond)
		second := countedKinds[0].waiting(t, other, 1)
		w.sleep(time.Millisecond)
		w.srv.Latency(5 * time.Millisecond)
		tried := make(chan error)
		go func() {
			w.sleep(time.Millisecond)
			tried <- c.Semaphore("sem").TryAcquire(t.Context(), 3)
		}()
		wantOK(t, "Release", s.Release(t.Context(), 1))
		wantErr(t, "TryAcquire", <-tried, lock.ErrNotAcquired)
		w.srv.Latency(0)
		w.sleep(20 * time.Millisecond)
		if len(first) != 1 || len(second) != 0 {
			t.Errorf("the permit went to %d and %d, want to the first in the line", len(first), len(second))
		}
		(<-first)()
		(<-second)()
		wantOK(t, "Release", s.Release(t.Context(), 1))
		w.settled("sem")
	})
}
