package lock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// TryLock stands in no line, and passes nobody by.
func TestFairTryLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.Fair("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock of a lock that is taken", err, lock.ErrNotAcquired)
		w.wantLine()
		owner := c.NewOwner()
		next := w.waiter(c, lock.As(owner))
		w.srv.Do("DEL", "job")
		_, err = c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock of a free lock that somebody waits for", err, lock.ErrNotAcquired)
		w.wantLine(owner.String())
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		mustUnlock(t, <-next) // a release of nothing wakes it
		w.free()
	})
}

func TestFairReentryAndForce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner, other := c.NewOwner(), c.NewOwner()
		outer := mustLockFair(t, c, lock.As(owner))
		next := w.waiter(c, lock.As(other))
		inner := mustLockFair(t, c, lock.As(owner), lock.For(time.Second))
		info, err := c.Fair("job").Info(t.Context())
		if err != nil || !slices.Equal(info.Holders, []lock.Holder{{Owner: owner.String(), Holds: 2, Remaining: info.Remaining}}) || info.Remaining < 29*time.Second ||
			len(info.Queue) != 1 || info.Queue[0].Owner != other.String() || info.Queue[0].Deadline < 5*time.Minute {
			t.Errorf("Info() = %+v, %v", info, err)
		}
		mustUnlock(t, inner)
		w.wantLine(other.String())
		start := time.Now()
		if forced, err := c.Fair("job").ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock() = %v, %v", forced, err)
		}
		lease := <-next
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the waiter is served %v after ForceUnlock", took)
		}
		lostBecause(t, outer.Err(), lock.Forced)
		mustUnlock(t, lease)
		w.free()
	})
}

func TestNonReentrantFair(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.NonReentrantFair("job"), c.NewOwner()
		lease, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		next := w.waiter(c)
		start := time.Now()
		_, err = job.Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock by the owner", err, lock.ErrReentry)
		_, err = job.TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock by the owner", err, lock.ErrReentry)
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
		w.sleep(time.Second)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after refusals = %v", err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-next)
		w.free()
	})
}

// What stands in the place of a queue is an error, and stays; the lock can be given back.
func TestFairWrongQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLockFair(t, c)
		w.srv.Do("SET", jobQueue, "kept")
		_, err := c.Fair("job").Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrWrongType)
		_, err = c.Fair("job").Info(t.Context())
		wantErr(t, "Info", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		if w.srv.Do("GET", jobQueue) != "kept" || w.srv.Do("EXISTS", "job") != int64(0) {
			t.Errorf("the server has %q", w.srv.Dump())
		}
		w.srv.Do("DEL", jobQueue)
		w.sleep(latchLife) // of what could not be taken back
		w.free()
	})
}

// The number of waiters in a reply is believed only if so many may follow.
func TestFairInfoThatMakesNoSense(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, reply := range []string{"*2\r\n:-1\r\n:-2\r\n", "*4\r\n:3\r\n$1\r\na\r\n:5\r\n:-2\r\n"} {
			w.onScriptOf("fair", "info", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			if info, err := c.Fair("job").Info(t.Context()); err == nil || !strings.Contains(err.Error(), "a queue without the queue") {
				t.Errorf("Info() of %q = %+v, %v, want the length of the queue as the reason", reply, info, err)
			}
		}
		w.srv.Intercept(nil)
	})
}

// Several calls of one Owner have one place in the queue. It stays as long as one of them waits, and what one gets the others
// get with it.
func TestFairCallsOfOneOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder := mustLockFair(t, other)
		owner := c.NewOwner()
		first, second := w.waiter(c, lock.As(owner)), w.waiter(c, lock.As(owner))
		third := w.waiter(other)
		for range 3 { // each at once after the one before it
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := c.Fair("job").Lock(ctx, lock.As(owner))
			cancel()
			wantErr(t, "Lock", err, lock.ErrNotAcquired)
		}
		w.sleep(time.Second)
		if line := w.line(); len(line) != 2 || line[0] != owner.String() {
			t.Errorf("in line stand %v, want %v first of two", line, owner)
		}
		start := time.Now()
		mustUnlock(t, holder)
		mustUnlock(t, <-first)
		mustUnlock(t, <-second)
		mustUnlock(t, <-third)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("they are served within %v", took)
		}
		w.free()
	})
}

// Who gives up and asks again at once is in the queue, whatever the server is asked first.
func TestFairOwnerWhoComesBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder := mustLockFair(t, other)
		owner := c.NewOwner()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := c.Fair("job").Lock(ctx, lock.As(owner))
			cancel()
			wantErr(t, "Lock", err, lock.ErrNotAcquired)
			waiting, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); c.Fair("job").Lock(waiting, lock.As(owner)) }()
			w.sleep(10 * time.Millisecond)
			w.wantLine(owner.String())
			cancel()
			<-done
		}
		last := w.waiter(c, lock.As(owner))
		start := time.Now()
		mustUnlock(t, holder)
		mustUnlock(t, <-last)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		w.free()
	})
}

// Who gives up while the server is asked leaves by the undo of that: one script, also where another call of its Owner waits on.
func TestFairLeavesByTheUndo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		for _, stays := range []bool{false, true} {
			holder := mustLockFair(t, other)
			var waiting <-chan *lock.Lease
			var opts []lock.Option
			if stays {
				opts = append(opts, lock.As(owner))
				waiting = w.waiter(c, opts...)
			}
			undos := 0
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				switch {
				case isScriptOf("fair", cmd, "undo"):
					undos++
				case isScriptOf("fair", cmd, "acquire"):
					return fakeredis.Run().Late(100 * time.Millisecond)
				}
				return fakeredis.Run()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := c.Fair("job").Lock(ctx, opts...)
			cancel()
			wantErr(t, "Lock", err, context.DeadlineExceeded)
			w.sleep(time.Second)
			w.srv.Intercept(nil)
			if undos != 1 {
				t.Errorf("%d undos were sent, want one", undos)
			}
			if !stays {
				w.wantLine()
				mustUnlock(t, holder)
				continue
			}
			w.wantLine(owner.String())
			mustUnlock(t, holder)
			mustUnlock(t, <-waiting)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A call of an Owner that gives up without a request of its own leaves the place that the undo of another call has kept for it.
func TestFairLeavesThePlaceOfAnotherCall(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner, holder := c.NewOwner(), mustLockFair(t, w.client(lock.Config{}))
		w.onFair("acquire", owner.String(), func(int) fakeredis.Action { return fakeredis.Run().Late(time.Second) })
		waits := func(most time.Duration) <-chan error {
			ended := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				_, err := c.Fair("job").Lock(ctx, lock.As(owner))
				ended <- err
			}()
			w.sleep(10 * time.Millisecond)
			return ended
		}
		first, second := waits(50*time.Millisecond), waits(100*time.Millisecond)
		wantErr(t, "the call that asks", <-first, context.DeadlineExceeded)
		wantErr(t, "the call behind it", <-second, context.DeadlineExceeded)
		w.sleep(5 * time.Second)
		w.wantLine()
		mustUnlock(t, holder)
		w.sleep(latchLife)
		w.free()
	})
}

// One call of an Owner gets the lock without the server telling the other, which waits for it.
func TestFairTryLockOfAWaitingOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		w.srv.Do("HSET", "job", "stranger:1", "1")
		waiting := w.waiter(c, lock.As(owner))
		w.srv.Do("DEL", "job")
		start := time.Now()
		tried, err := c.Fair("job").TryLock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, <-waiting)
		if took := time.Since(start); took > time.Second {
			t.Errorf("the call that waits has it after %v", took)
		}
		mustUnlock(t, tried)
		w.free()
	})
}

// Who has stood in line for a moment only does not listen yet, and is not passed over with those in front of it, though the
// one that was last when they were first seen has gone.
func TestFairNewcomerBehindDeadHeads(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		java.late = 55 * time.Millisecond
		holder := mustLockFair(t, c)
		java.acquire("dead:1", 5*time.Minute, true)
		java.acquire("dead:2", 5*time.Minute, true)
		mustUnlock(t, holder)
		_, err := c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock behind others", err, lock.ErrNotAcquired)
		w.sleep(1100 * time.Millisecond)
		w.srv.Do("LREM", jobQueue, "0", "dead:2")
		w.srv.Do("ZREM", jobTimeouts, "dead:2")
		first := make(chan bool)
		go func() { first <- java.lock(t.Context(), "java:1") }()
		w.sleep(time.Millisecond)
		_, err = c.Fair("job").TryLock(t.Context())
		wantErr(t, "TryLock behind a newcomer", err, lock.ErrNotAcquired)
		w.wantLine("java:1")
		<-first
		java.unlock("java:1")
		w.sleep(30 * time.Second) // what ours note about the head, Redisson's leave to its time
		w.free()
	})
}

// A waiter behind a dead head gives up, the only one that knows that the lock is free, or how soon its lease ends: the next waiter comes in as
// soon as behind a dead head alone.
func TestFairLeaverBehindADeadHead(t *testing.T) {
	for name, free := range map[string]func(w *world, holder *lock.Lease){
		"free": func(w *world, holder *lock.Lease) {
			mustUnlock(w.t, holder)
			w.sleep(300 * time.Millisecond)
		},
		"lease": func(w *world, holder *lock.Lease) {
			mustUnlock(w.t, holder) // the waiter in front of the dead head gets the lock for 2 s
			w.sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(time.Millisecond)
				job := func(c *lock.Client) goldenLock { return c.Fair("job") }
				holder := mustHave(t, job(w.client(lock.Config{})), lock.For(time.Minute))
				if name == "lease" {
					w.waitFor(t.Context(), job, 2*time.Second)
				}
				w.fairRedisson().acquire("dead:1", 5*time.Minute, true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				between, next := w.waitFor(ctx, job, time.Minute), w.waitFor(t.Context(), job, time.Minute)
				start := time.Now()
				free(w, holder)
				cancel()
				if <-between != nil {
					t.Fatal("the waiter between has the lock")
				}
				lease := <-next
				most := 2500 * time.Millisecond
				if name == "lease" {
					most += 2 * time.Second
				}
				if waited := time.Since(start); waited > most {
					t.Errorf("served after %v, want %v at most", waited, most)
				} else {
					t.Logf("served after %v", waited)
				}
				mustUnlock(t, lease)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// At the end of a lease that nobody releases the first of the queue asks, and not all who wait.
func TestFairLeasesThatEndByThemselves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const waiters, lease = 150, 50 * time.Millisecond
		holder := w.client(lock.Config{})
		l, err := holder.Fair("fair").Lock(t.Context(), lock.For(lease))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range waiters {
			c := w.client(lock.Config{})
			all.Go(func() {
				l, err := c.Fair("fair").Lock(t.Context(), lock.For(lease))
				if err != nil {
					t.Error(err)
					return
				}
				w.sleep(5 * time.Millisecond)
				wantOK(t, "Unlock", l.Unlock(t.Context()))
			})
		}
		w.sleep(time.Millisecond)
		w.srv.ClearLog()
		wantOK(t, "Unlock", l.Unlock(t.Context()))
		all.Wait()
		if each := float64(w.asked()) / waiters; each > 4 {
			t.Errorf("%.1f acquires were sent for each granted, want 4 at most", each)
		}
	})
}

// An Owner that waits in the queue of a fair lock gets the lock as another kind: its waiting call has a further hold then, and no place is left.
func TestFairPlaceOfAFurtherHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		o := c.NewOwner()
		if _, err := other.Fair("job").Lock(t.Context(), lock.For(2*time.Second)); err != nil {
			t.Fatal(err)
		}
		fair := make(chan *lock.Lease)
		go func() {
			l, err := c.Fair("job").Lock(t.Context(), lock.As(o))
			if err != nil {
				t.Error(err)
			}
			fair <- l
		}()
		w.sleep(time.Second)
		w.srv.Do("DEL", "job") // or the lease ends a moment before
		first, err := c.Reentrant("job").TryLock(t.Context(), lock.As(o))
		if err != nil {
			t.Fatal(err)
		}
		second := <-fair
		mustUnlock(t, second)
		mustUnlock(t, first)
		start := time.Now()
		l, err := other.Fair("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the next owner of the free lock has waited for %v", took)
		}
		mustUnlock(t, l)
		w.free()
	})
}
