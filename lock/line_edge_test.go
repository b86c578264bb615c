package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/pubsub"
)

// The first of three hangs when it is called. Whatever becomes of the second, the third has the lock after the first one's turn.
func TestThirdWhileTheFirstHangs(t *testing.T) {
	for _, second := range []string{"leaves", "is dead"} {
		t.Run(second, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				hung := w.client(lock.Config{})
				lease := mustLock(t, w.client(lock.Config{}), "job")
				first := asyncLock(t, t.Context(), hung)
				w.sleep(time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				if second == "leaves" {
					asyncLock(t, ctx, w.client(lock.Config{}))
				} else {
					w.srv.Do("ZADD", jobLine, fmt.Sprint(time.Now().UnixMicro()), "dead:1")
				}
				w.sleep(time.Millisecond)
				third := asyncLock(t, t.Context(), w.client(lock.Config{}))
				arrive := w.hangs(hung)
				begin := time.Now()
				mustUnlock(t, lease)
				w.sleep(50 * time.Millisecond)
				cancel()
				got := <-third
				if took := time.Since(begin); took > 300*time.Millisecond {
					t.Errorf("the third has the lock after %v", took)
				}
				arrive()
				mustUnlock(t, got)
				mustUnlock(t, <-first)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// The line has a time to live even if the lock has none.
func TestLineOfALockWithoutALease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Do("HSET", "job", "somebody:1", "1")
		ctx, cancel := context.WithCancel(t.Context())
		asyncLock(t, ctx, w.client(lock.Config{}))
		if left := w.ttl(jobLine); left < 0 {
			t.Error("the line lasts for ever")
		}
		cancel()
		w.srv.Do("DEL", "job")
		w.sleep(time.Second)
		w.free()
	})
}

// A lease that the server has lost leaves no place behind.
func TestPlaceOfALostLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, w.client(lock.Config{}), "job")
		ctx, cancel := context.WithCancel(t.Context())
		got := asyncLock(t, t.Context(), c)
		asyncLock(t, ctx, c) // hence the place is moved, not ended
		w.srv.Latency(5 * time.Millisecond)
		released := make(chan error)
		go func() { released <- lease.Unlock(context.Background()) }()
		w.sleep(12 * time.Millisecond) // the acquire is on its way
		cancel()
		if err := <-released; err != nil {
			t.Error(err)
		}
		l := <-got
		w.srv.Latency(0)
		w.sleep(time.Second)
		w.srv.Do("DEL", "job")
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrNotHeld)
		w.sleep(latchLife)
		w.free()
	})
}

// A key of another type in the place of the line keeps no lock from being taken and released.
func TestLineOfAnotherType(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Do("SET", jobLine, "x")
		lease := mustLock(t, c, "job")
		got := asyncLock(t, t.Context(), w.client(lock.Config{}))
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		w.srv.Do("DEL", jobLine)
		w.sleep(latchLife)
		w.free()
	})
}

// A process whose way to the server takes longer than the first turns that it is given has its turns all the same.
func TestVeryFarProcessHasItsTurns(t *testing.T) {
	for _, way := range []time.Duration{60 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				far := w.client(lock.Config{})
				w.acquiresOf(far, fakeredis.Delay(way, fakeredis.Run()))
				end := time.Now().Add(time.Minute)
				done := make(chan int)
				work := func(c *lock.Client) {
					turns := 0
					for time.Now().Before(end) {
						l, err := c.Reentrant("job").Lock(context.Background())
						if err != nil {
							t.Error(err)
							break
						}
						turns++
						w.sleep(20 * time.Millisecond)
						if err := l.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
					}
					done <- turns
				}
				near := []*lock.Client{w.client(lock.Config{}), w.client(lock.Config{})}
				go work(near[0])
				go work(near[1])
				turns := make(chan int)
				go func() { turns <- <-done + <-done }()
				others := 0
				for time.Now().Before(end) {
					mustUnlock(t, mustLock(t, far, "job"))
					others++
				}
				all := <-turns
				if others < all/20 {
					t.Errorf("the far process had %d turns, the near ones %d", others, all)
				}
				w.srv.Intercept(nil)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// A listener that never takes the lock has turns for half of the time at most while nobody waits in the line, and nothing remains of it.
func TestListenerWithoutWaiters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(100 * time.Microsecond)
		pool := w.pool(conn.Config{})
		defer pool.Close()
		s := pubsub.New(pool, pubsub.Config{})
		defer s.Close()
		if _, err := s.Subscribe(t.Context(), jobChannel); err != nil {
			t.Fatal(err)
		}
		lease := mustLock(t, c, "job")
		got := asyncLock(t, t.Context(), w.client(lock.Config{}))
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		w.sleep(10 * time.Second)
		begin := time.Now()
		for range 100 {
			mustUnlock(t, mustLock(t, c, "job"))
		}
		if took := time.Since(begin); took > 180*time.Millisecond {
			t.Errorf("a hundred pairs of two round trips of 0.2 ms took %v", took)
		}
		s.Close()
		w.srv.Latency(0)
		w.sleep(time.Second)
		w.sleep(25 * time.Second)
		if left := w.srv.Dump(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Close ends in time although an Owner's waiter asks while the server does not answer.
func TestCloseWhileALookIsUnderWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		mustLock(t, c, "job")
		for range 3 {
			go func() { _, _ = c.Reentrant("job").Lock(context.Background(), lock.As(c.NewOwner())) }()
		}
		w.sleep(10 * time.Millisecond)
		w.srv.Stall(true)
		w.sleep(time.Second)
		begin := time.Now()
		_ = c.Close()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		w.clients = slices.DeleteFunc(w.clients, func(other *lock.Client) bool { return other == c })
		w.srv.Stall(false)
		w.sleep(time.Minute)
		if keys := fmt.Sprint(w.srv.Do("KEYS", "*")); strings.Contains(keys, "lockwire_line") {
			t.Errorf("%v are left", keys)
		}
	})
}

// Beside a reader that does not leave, others come in for a third of the time, however long a writer waits. It keeps none out for longer
// than it has waited, and has the lock when the reader has left.
func TestReadersBesideAKeeper(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const length = 10 * time.Minute
		keeper, c := mustRead(t, w.client(lock.Config{})), w.client(lock.Config{})
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		begin, last, came, tries := time.Now(), time.Now(), 0, 0
		for ; time.Since(begin) < length; tries++ {
			if l, err := c.ReadWrite("job").Read().TryLock(t.Context()); err == nil {
				mustUnlock(t, l)
				last, came = time.Now(), came+1
			} else if out, waited := time.Since(last), last.Sub(begin); out > waited+5*time.Second {
				t.Fatalf("after %v the writer keeps readers out for %v", waited, out)
			}
			w.sleep(time.Second)
		}
		if came < tries/4 {
			t.Errorf("a reader came in %d times of %d", came, tries)
		}
		mustUnlock(t, keeper)
		mustUnlock(t, <-writer)
		w.sleep(time.Second)
		w.free()
	})
}
