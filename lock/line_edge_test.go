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

// A process that is far from the server gets another place, with a longer turn. It leaves the old one, too, when nobody of it waits any more:
// in front of others, the old place would be told in their place.
func TestOldPlaceIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustLock(t, w.client(lock.Config{}), "job")
		far := w.client(lock.Config{})
		w.srv.Latency(80 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := far.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock", err, lock.ErrNotAcquired)
		w.sleep(300 * time.Millisecond) // its subscription is kept for longer
		if places := w.srv.Do("ZRANGE", jobLine, "0", "-1"); fmt.Sprint(places) != "[]" {
			t.Errorf("places in the line: %v", places)
		}
		w.srv.Latency(0)
		mustUnlock(t, lease)
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

// A reader that has been called comes in, although meanwhile a writer has come that goes first: otherwise neither has the free lock
// until the end of the reader's turn.
func TestCalledReaderComesInBeforeAPreferringWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease, called := mustWrite(t, w.client(preferring)), w.client(preferring)
		reader := lockOf(toRead).waits(t, t.Context(), called)
		arrive := w.hangs(called)
		mustUnlock(t, lease)
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(preferring))
		begin := time.Now()
		arrive()
		var wg sync.WaitGroup
		for _, got := range []<-chan *lock.Lease{reader, writer} {
			wg.Go(func() { wantOK(t, "Unlock", (<-got).Unlock(t.Context())) })
		}
		wg.Wait()
		if took := time.Since(begin); took != 0 {
			t.Errorf("both have had the lock after %v", took)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A TryLock to write that readers refuse leaves the writer of its process in its place, next in the line.
func TestTryLockBesideAWaitingWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		keeper := mustRead(t, w.client(lock.Config{}))
		first := lockOf(toWrite).waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		second := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		isTaken(t, c.ReadWrite("job").Write())
		if lease, err := w.client(lock.Config{}).ReadWrite("job").Read().TryLock(t.Context()); err == nil {
			t.Error("a reader passed a writer")
			mustUnlock(t, lease)
		}
		mustUnlock(t, keeper)
		synctest.Wait()
		for i, got := range []<-chan *lock.Lease{first, second} {
			select {
			case lease := <-got:
				mustUnlock(t, lease)
				synctest.Wait()
			default:
				t.Fatalf("writer %d waits", i+1)
			}
		}
		w.sleep(time.Second)
		w.free()
	})
}

// Two writers of a process ask for the first time at once, and so by two places. The second leaves the first its place, in front of
// another process.
func TestSecondWriterLeavesTheFirstItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, d := w.client(lock.Config{}), w.client(lock.Config{})
		keeper := mustRead(t, w.client(lock.Config{}))
		isTaken(t, c.ReadWrite("job").Write())
		isTaken(t, d.ReadWrite("job").Write())
		w.srv.Latency(5 * time.Millisecond)
		var writers []<-chan *lock.Lease
		for _, client := range []*lock.Client{c, d, c} {
			writers = append(writers, lockOf(toWrite).waits(t, t.Context(), client))
			w.sleep(time.Millisecond)
		}
		w.sleep(5 * time.Millisecond)
		if line := fmt.Sprint(w.srv.Do("ZRANGE", jobLine, "0", "0")); !strings.HasPrefix(line, "[~"+c.ID()) {
			t.Errorf("the line begins with %s, want the writer that is next", line)
		}
		w.srv.Latency(0)
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, keeper)
		var wg sync.WaitGroup
		for _, got := range writers {
			wg.Go(func() { wantOK(t, "Unlock", (<-got).Unlock(t.Context())) })
		}
		wg.Wait()
		w.sleep(time.Second)
		w.free()
	})
}

// An Owner's further hold, under way while the last waiter of the process gets the lock, leaves no place in the line.
func TestFurtherHoldLeavesNoPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		other, c := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		lease := mustWrite(t, other)
		first := readsAs(owner).waits(t, t.Context(), c)
		second := lockOf(toRead).waits(t, t.Context(), c)
		w.srv.Latency(5 * time.Millisecond)
		unlocked := unlocks(t, lease) // at 10 ms the first reader is called, at 20 ms it has the lock, and the second asks
		w.sleep(21 * time.Millisecond)
		further := readsAs(owner).waits(t, t.Context(), c) // its acquire arrives behind the one of the second, and leaves before the answer to that
		for _, got := range []<-chan *lock.Lease{second, further, first} {
			mustUnlock(t, <-got)
		}
		<-unlocked
		w.srv.Latency(0)
		w.sleep(time.Second)
		if line := w.srv.Do("EXISTS", jobLine); line != int64(0) {
			t.Errorf("places are left: %v", w.srv.Do("ZRANGE", jobLine, "0", "-1"))
		}
		w.sleep(latchLife)
		w.free()
	})
}

// Two readers of a process ask by the same place. The first is granted and leaves the place, the second is refused because a writer is
// next, and takes the place again. It leaves the place when it stops waiting.
func TestRefusedReaderKeepsThePlaceThatAnotherLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		outer := mustRead(t, c, lock.As(owner))
		first := lockOf(toRead).waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.srv.Latency(5 * time.Millisecond)
		unlocked := unlocks(t, write) // at 10 ms the first is called, at 20 ms it has the lock
		w.sleep(7 * time.Millisecond)
		further := readsAs(owner).waits(t, t.Context(), c) // granted at 17 ms: the second may ask
		w.sleep(5 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		second := lockOf(toRead).waits(t, ctx, c)
		w.sleep(30 * time.Millisecond)
		if len(second) != 0 {
			t.Error("a reader passed a writer")
		}
		cancel()
		<-second
		<-unlocked
		w.sleep(30 * time.Millisecond)
		for _, l := range []*lock.Lease{<-first, <-further, outer} {
			mustUnlock(t, l)
		}
		mustUnlock(t, <-writer)
		w.srv.Latency(0)
		w.sleep(time.Second)
		if line := w.srv.Do("EXISTS", jobLine); line != int64(0) {
			t.Errorf("places are left: %v", w.srv.Do("ZRANGE", jobLine, "0", "-1"))
		}
		w.sleep(latchLife)
		w.free()
	})
}

// asOwner is a lock that an Owner takes.
type asOwner struct {
	goldenLock
	owner lock.Owner
}

func (l asOwner) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return l.goldenLock.Lock(ctx, append(opts, lock.As(l.owner))...)
}

func readsAs(owner lock.Owner) lockOf {
	return func(c *lock.Client) goldenLock { return asOwner{toRead(c), owner} }
}

// unlocks releases l in a goroutine.
func unlocks(t *testing.T, l *lock.Lease) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		wantOK(t, "Unlock", l.Unlock(t.Context()))
	}()
	return over
}

// A waiter whose turn comes leaves it to the waiters behind if its deadline comes before the answer to an attempt. One pause of the
// server makes no difference to a waiter with more time.
func TestTurnWithTooLittleTime(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	for _, test := range []struct {
		pause, left time.Duration // of the attempt before; for the second waiter at its turn
		want        error
	}{
		{0, roundTrip - 1, context.DeadlineExceeded},
		{0, roundTrip + 1, nil},
		{time.Second, 500 * time.Millisecond, nil},
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			permits := w.client(lock.Config{}).Semaphore("permits")
			for _, err := range []error{permits.AddPermits(t.Context(), 2), permits.Acquire(t.Context(), 2)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			waiters := w.client(lock.Config{}).Semaphore("permits")
			acquire := func(limit time.Duration) <-chan error {
				got := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					got <- waiters.Acquire(ctx, 1)
				}()
				synctest.Wait()
				return got
			}
			w.srv.Latency(roundTrip / 2)
			first := acquire(time.Minute)
			w.sleep(time.Second)
			second := acquire(2*roundTrip + test.pause + test.left) // the release, and the attempt of the first waiter
			third := acquire(time.Minute)
			evals := w.srv.Count("EVALSHA")
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "EVALSHA" && cmd.N == evals+2 {
					return fakeredis.Delay(test.pause, fakeredis.Run())
				}
				return fakeredis.Run()
			})
			if err := permits.Release(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "the first waiter", <-first, nil)
			granted := w.srv.Count("EVALSHA")
			wantErr(t, "the second waiter", <-second, test.want)
			if test.want == nil {
				_ = permits.Release(t.Context(), 1)
			}
			wantErr(t, "the third waiter", <-third, nil)
			if asked := w.srv.Count("EVALSHA") - granted; test.want != nil && asked != 1 {
				t.Errorf("after the first waiter others asked %d times, want the third only", asked)
			}
		})
	}
}

// A hold that is handed over to a waiter with a place of its own leaves the place that it has kept for its release.
func TestHandOverLeavesThePlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder, leases := mustLock(t, other, "job"), make(chan *lock.Lease)
		take := func() { leases <- mustLock(t, c, "job", lock.For(time.Minute)) }
		go take()
		go take()
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, holder)
		mustUnlock(t, <-leases)
		last := <-leases
		go take()
		w.sleep(10 * time.Millisecond)
		mustUnlock(t, last)
		mustUnlock(t, <-leases)
		w.sleep(100 * time.Millisecond)
		if places := w.srv.Do("ZRANGE", "lockwire_line:{job}", "0", "-1"); len(places.([]any)) != 0 {
			t.Errorf("%v stand in the line, and nobody waits", places)
		}
	})
}

// Only the head of the line, or queue, knows the lease of a holder that has been called: when it leaves, the process behind learns of that lease,
// and gets the lock at its end, though nobody releases it.
func TestHeadThatLeavesTellsOfTheLease(t *testing.T) {
	for name, job := range map[string]func(c *lock.Client) goldenLock{
		"Reentrant": func(c *lock.Client) goldenLock { return c.Reentrant("job") },
		"Fenced":    func(c *lock.Client) goldenLock { return c.Fenced("job") },
		"Write":     func(c *lock.Client) goldenLock { return c.ReadWrite("job").Write() },
		"Fair":      func(c *lock.Client) goldenLock { return c.Fair("job") },
	} {
		for _, leaves := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " leaves ", leaves), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { w.letsLeaseEnd(job, leaves) })
			})
		}
	}
}

// letsLeaseEnd has processes wait: the first lets its lease of 2 s end, one between may give up meanwhile, and the last gets the lock.
func (w *world) letsLeaseEnd(job func(c *lock.Client) goldenLock, leaves bool) {
	t := w.t
	holder := mustHave(t, job(w.client(lock.Config{})), lock.For(time.Minute))
	first := w.waitFor(t.Context(), job, 2*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	between := make(<-chan *lock.Lease)
	if leaves {
		between = w.waitFor(ctx, job, time.Minute)
	}
	last := w.waitFor(t.Context(), job, time.Minute)
	mustUnlock(t, holder)
	<-first
	start := time.Now()
	w.sleep(time.Second)
	cancel()
	if leaves && <-between != nil {
		t.Fatal("the process between has the lock")
	}
	next := <-last
	if waited := time.Since(start); waited > 3*time.Second {
		t.Errorf("the lock was free after 2s, and the waiter got it after %v", waited)
	}
	mustUnlock(t, next)
	w.srv.Do("DEL", "redisson_lock_token:{job}")
	w.sleep(latchLife)
	w.free()
}

// waitFor has a process of its own wait for a lock, and returns its lease, nil if its context ends before.
func (w *world) waitFor(ctx context.Context, job func(c *lock.Client) goldenLock, lease time.Duration) <-chan *lock.Lease {
	got, c := make(chan *lock.Lease, 1), w.client(lock.Config{})
	go func() {
		l, err := job(c).Lock(ctx, lock.For(lease))
		if err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		got <- l
	}()
	w.sleep(100 * time.Millisecond)
	return got
}
