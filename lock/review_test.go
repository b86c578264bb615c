package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// clientOn is client with a configuration for its pool as well.
func (w *world) clientOn(pool conn.Config, cfg lock.Config) *lock.Client {
	w.t.Helper()
	pool.Dial = w.srv.Dial
	p, err := conn.Open(w.t.Context(), pool)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := lock.New(p, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.pools = append(w.pools, p)
	w.clients = append(w.clients, c)
	return c
}

// wantHolds fails the test unless the server has so many holds for the owner, and lease knows of no loss.
func (w *world) wantHolds(name, count string, lease *lock.Lease) {
	w.t.Helper()
	got, _ := w.srv.Do("HGET", name, lease.Owner()).(string)
	if got != count || lease.Err() != nil {
		w.t.Fatalf("hold count on the server %q, Err() = %v, want %q and nil", got, lease.Err(), count)
	}
}

// late has the first request for a script disappear along with its connection. The function returned has it arrive after
// all, as what was in a buffer of the network when a connection died may.
func (w *world) late(operation string) (arrive func()) {
	var args []string
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if args == nil && isScript(cmd, operation) {
			args = cmd.Args
			return fakeredis.Close()
		}
		return fakeredis.Run()
	})
	return func() {
		w.t.Helper()
		w.srv.Intercept(nil)
		if args == nil {
			w.t.Fatalf("no %s was sent", operation)
		}
		w.srv.Do(args...)
	}
}

// A release that arrives after its repeat was answered gives back no second hold.
func TestLateReleaseTakesNoOtherHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		arrive := w.late("release")
		mustUnlock(t, inner)
		time.Sleep(time.Second)
		arrive()
		w.wantHolds("job", "1", outer)
		mustUnlock(t, outer)

		outer = mustLock(t, c, "job", lock.As(owner))
		arrive = w.late("release")
		mustUnlock(t, outer)
		again := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(time.Second)
		arrive()
		w.wantHolds("job", "1", again)
		mustUnlock(t, again)
		time.Sleep(20 * time.Second) // what notes the outcome of a release may stay for so long
		w.free()
	})
}

// A release that found nothing, because the lease had ended, finds nothing later either.
func TestLateReleaseOfAnEndedLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		old := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
		time.Sleep(2 * time.Second)
		arrive := w.late("release")
		wantErr(t, "Unlock", old.Unlock(t.Context()), lock.ErrNotHeld)
		lease := mustLock(t, c, "job", lock.As(owner))
		arrive()
		w.wantHolds("job", "1", lease)
		mustUnlock(t, lease)
		time.Sleep(20 * time.Second)
		w.free()
	})
}

// The same of an undo.
func TestLateUndoTakesNoLaterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		arrive := w.late("undo")
		w.srv.Latency(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Reentrant("job").TryLock(ctx, lock.As(owner)); err == nil {
			t.Fatal("TryLock() succeeded without an answer")
		}
		inner := mustLock(t, c, "job", lock.As(owner))
		arrive()
		w.wantHolds("job", "2", inner)
		mustUnlock(t, inner)
		w.wantHolds("job", "1", outer)
		mustUnlock(t, outer)
		time.Sleep(20 * time.Second)
		w.free()
	})
}

// A lease that ended, by time or by force, is released after its owner has taken the lock anew.
func TestUnlockSparesWhatWasTakenSince(t *testing.T) {
	for name, end := range map[string]func(*world){
		"expired": func(*world) { time.Sleep(2 * time.Second) },
		"forced":  func(w *world) { w.srv.Do("DEL", "job") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := c.NewOwner()
				old := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
				end(w)
				lease := mustLock(t, c, "job", lock.As(owner))
				wantErr(t, "Unlock of the lease that had ended", old.Unlock(t.Context()), lock.ErrNotHeld)
				w.wantHolds("job", "1", lease)
				mustUnlock(t, lease)
				w.free()
			})
		})
	}
}

// The server grants an owner its first hold: whatever it believes to hold since earlier had been lost in between, and the
// renewals of the new hold must not hide that.
func TestNewHoldTellsEarlierOnes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		old := mustLock(t, c, "job", lock.As(owner))
		w.srv.Do("DEL", "job")
		next := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(time.Minute)
		lostBecause(t, old.Err(), lock.Forced)
		w.wantHolds("job", "1", next)
		mustUnlock(t, next)
		w.free()
	})
}

func TestConcurrentUnlocksOfOneOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(time.Millisecond)
		owner := c.NewOwner()
		var leases []*lock.Lease
		for range 3 {
			leases = append(leases, mustLock(t, c, "job", lock.As(owner)))
		}
		var wg sync.WaitGroup
		for _, l := range leases {
			wg.Go(func() {
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock() = %v", err)
				}
			})
		}
		wg.Wait()
		w.free()
	})
}

// After Close a hold that is given back leaves the lock to the owner's other hold, whose work may not have stopped.
func TestUnlockAfterCloseSparesTheOuterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, inner)
		if got := w.srv.Do("HGET", "job", owner.String()); got != "1" {
			t.Errorf("hold count on the server %v, want 1", got)
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// An undo is sent behind its acquire, on the same connection, also where there are several and it is one of many.
func TestUndoFollowsItsAcquire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Conns: 4}, lock.Config{})
		// The names are on three connections. While the undo of a is under way those of b and c come together.
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "acquire") && cmd.Args[3] == "c":
				return fakeredis.Delay(time.Second, fakeredis.Run())
			case isScript(cmd, "acquire"):
				return fakeredis.Run().Late(150 * time.Millisecond)
			}
			return fakeredis.Run()
		})
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+i)*time.Millisecond)
				defer cancel()
				if _, err := c.Reentrant(name).TryLock(ctx, lock.For(time.Hour)); err == nil {
					t.Errorf("TryLock(%q) succeeded without an answer", name)
				}
			})
		}
		wg.Wait()
		time.Sleep(30 * time.Second)
		w.free()
	})
}

// The caller leaves and the connection dies at the same moment, with the acquire on its way.
func TestUndoOfALateAcquireOfACallerThatLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var args []string
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "acquire") {
				cancel()
				args = cmd.Args
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		if _, err := c.Reentrant("job").TryLock(ctx, lock.For(time.Hour)); err == nil {
			t.Fatal("TryLock() succeeded without an answer")
		}
		time.Sleep(time.Second)
		w.srv.Intercept(nil)
		w.srv.Do(args...)
		time.Sleep(10 * time.Second)
		w.free()
	})
}

// A connection that has turned to stone is given up after the usual time also when the caller who waits on it could wait
// longer: neither that caller nor the leases that are renewed on it depend on his deadline.
func TestFarDeadlineDoesNotKeepADeadConnection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Do("HSET", "other", "somebody:1", "1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		got := make(chan error, 1)
		go func() {
			other, err := c.Reentrant("other").Lock(ctx)
			if err == nil {
				err = other.Unlock(ctx)
			}
			got <- err
		}()
		time.Sleep(3 * time.Second)
		var last int64
		for _, cmd := range w.srv.Log() {
			last = max(last, cmd.Conn)
		}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Conn <= last {
				return fakeredis.Swallow()
			}
			return fakeredis.Run()
		})
		w.srv.Do("DEL", "other")
		w.srv.Do("PUBLISH", "redisson_lock__channel:{other}", "0")
		start := time.Now()
		if err := <-got; err != nil || time.Since(start) > 15*time.Second {
			t.Errorf("Lock() = %v after %v, want nil within 15s", err, time.Since(start))
		}
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("a lease that a new connection could have renewed: %v", err)
		}
	})
}

// A grant that took longer than the lease is none.
func TestLockReturnsNoLeaseThatIsOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		slow := func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.Run().Late(2 * time.Second)
			}
			return fakeredis.Run()
		}
		w.onScript("acquire", slow)
		lease := mustLock(t, c, "job", lock.For(time.Second))
		if err := lease.Err(); err != nil {
			t.Errorf("Lock() returned a lease that was over: %v", err)
		}
		w.onScript("acquire", slow)
		lease, err := c.Reentrant("other").TryLock(t.Context(), lock.For(time.Second))
		if err == nil && lease.Err() != nil {
			t.Errorf("TryLock() returned a lease that was over: %v", lease.Err())
		}
	})
}

// Close does not wait for a renewal that nobody answers.
func TestCloseIsPrompt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 10 * time.Minute})
		mustLock(t, c, "job")
		time.Sleep(200*time.Second - time.Millisecond)
		w.srv.Mute(true)
		time.Sleep(time.Second)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// Close while nobody answers: a wait ends with it, and an Unlock in its own time.
func TestCloseWithCallsUnderWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Mute(true)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Reentrant("other").Lock(context.Background())
			if took := time.Since(start); !errors.Is(err, lock.ErrClosed) || took > 3*time.Second {
				t.Errorf("Lock() = %v after %v, want ErrClosed soon after Close at 1s", err, took)
			}
		})
		wg.Go(func() {
			err := lease.Unlock(context.Background())
			if took := time.Since(start); !errors.Is(err, lock.ErrUncertain) || took > 11*time.Second {
				t.Errorf("Unlock() = %v after %v, want ErrUncertain within 10s", err, took)
			}
		})
		time.Sleep(time.Second)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// Leases for a fixed time need no Unlock, and are forgotten when they end.
func TestEndedLeasesAreForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		for i := range 100 {
			mustLock(t, c, fmt.Sprint(i), lock.For(time.Second))
			mustLock(t, c, fmt.Sprint("owned", i), lock.For(time.Second), lock.As(owner))
		}
		time.Sleep(time.Hour)
		if n := c.Stats().Leases; n != 0 {
			t.Errorf("%d leases are held an hour after they ended", n)
		}
		w.free()
	})
}

func TestCheckOfAKeyOfAnotherType(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(time.Hour))
		w.srv.Do("SET", "job", "x")
		lostBecause(t, lease.Check(t.Context()), lock.Taken)
		lostBecause(t, lease.Err(), lock.Taken)
	})
}

// What is asked for after the end shows it at once.
func TestContextOfALeaseThatIsOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		one, two := mustLock(t, c, "one", lock.For(time.Second)), mustLock(t, c, "two", lock.For(time.Second))
		time.Sleep(2 * time.Second)
		ctx, cancel := one.Context(t.Context())
		defer cancel()
		lostBecause(t, context.Cause(ctx), lock.Expired)
		select {
		case <-two.Lost():
		default:
			t.Error("Lost is not closed")
		}
	})
}

// Replies that the scripts cannot give are neither a grant nor a release.
func TestNonsense(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, reply := range []string{"+QUEUED\r\n", "+\r\n", "+0\r\n", "+1\r\n", "*0\r\n", "$1\r\n1\r\n", "%0\r\n", "#t\r\n"} {
			w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
				if _, err := c.Reentrant("job").TryLock(t.Context(), opts...); err == nil {
					t.Errorf("TryLock() answered by %q succeeded", reply)
				}
			}
		}
		for _, reply := range []string{"+OK\r\n", ":7\r\n", ":-1\r\n", "*0\r\n", "$1\r\nx\r\n", "%0\r\n"} {
			w.srv.Intercept(nil)
			lease := mustLock(t, c, "job", lock.For(time.Second))
			w.onScript("release", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			if err := lease.Unlock(t.Context()); err == nil {
				t.Errorf("Unlock() answered by %q succeeded", reply)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// Whether the context ends between two looks or during one makes no difference to a waiter who knows that the lock is
// taken, and the context's own error is found beside its cause.
func TestEndOfAWaitIsTheSameAtAnyMoment(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Do("HSET", "job", "somebody:1", "1")
		w.srv.Latency(100 * time.Millisecond)
		cause := errors.New("cause")
		for after := 300 * time.Millisecond; after < 1500*time.Millisecond; after += 50 * time.Millisecond {
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, cause)
			_, err := c.Reentrant("job").Lock(ctx)
			cancel()
			for _, want := range []error{lock.ErrNotAcquired, context.DeadlineExceeded, cause} {
				wantErr(t, fmt.Sprintf("Lock that ends after %v", after), err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// counting is a handler of logs that counts.
type counting struct {
	slog.Handler
	n atomic.Int64
}

func (h *counting) Enabled(context.Context, slog.Level) bool      { return true }
func (h *counting) Handle(_ context.Context, _ slog.Record) error { h.n.Add(1); return nil }

// An outage is told of, and not once for each of the leases it concerns.
func TestOutageIsNotLoggedForEachLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var h counting
		c := w.client(lock.Config{Logger: slog.New(&h)})
		for i := range 1000 {
			mustLock(t, c, fmt.Sprint(i))
		}
		time.Sleep(9 * time.Second)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		time.Sleep(8 * time.Second)
		w.srv.Refuse(false)
		time.Sleep(time.Minute)
		if n := h.n.Load(); n == 0 || n > 20 {
			t.Errorf("%d lines in the log, want some and not many", n)
		}
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost", s.Lost)
		}
	})
}

// A machine that has slept for most of a lease renews it as soon as it is awake, and not only when it was due.
func TestRenewalAfterSleep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var machine lock.Machine
		c := w.client(lock.Config{})
		machine.Run(c)
		lease := mustLock(t, c, "job")
		work, cancel := lease.Context(t.Context())
		defer cancel()
		time.Sleep(time.Second)
		machine.Sleep(24 * time.Second)
		time.Sleep(12 * time.Second)
		if err := context.Cause(work); err != nil {
			t.Errorf("with 4.7s of the lease left when the machine woke: %v", err)
		}
	})
}

// A server that needs longer for a round of renewals than one may take gets smaller rounds.
func TestSlowRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{RenewBatch: 10})
		for i := range 160 {
			mustLock(t, c, fmt.Sprint(i))
		}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "renew") {
				return fakeredis.Delay(350*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		time.Sleep(5 * time.Minute)
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost although a server that slow could have renewed all: %+v", s.Lost, s)
		}
	})
}

// thoughtful has the caller of one command wait before it looks at the answer, as one that gets no processor does.
type thoughtful struct{ next atomic.Bool }

func (s *thoughtful) trace() *conn.Trace {
	return &conn.Trace{Command: func(info conn.CommandInfo) {
		if (info.Name == "EVALSHA" || info.Name == "SCRIPT") && s.next.CompareAndSwap(true, false) {
			time.Sleep(100 * time.Millisecond)
		}
	}}
}

// Who forces a lock is slow to learn that it worked; the next holder is not the one it was taken from.
func TestForceSparesTheNextHolder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var s thoughtful
		c := w.clientOn(conn.Config{Trace: s.trace()}, lock.Config{})
		old := mustLock(t, c, "job")
		next := make(chan *lock.Lease, 1)
		go func() { next <- mustLock(t, c, "job") }()
		time.Sleep(time.Second)
		s.next.Store(true)
		if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lostBecause(t, old.Err(), lock.Forced)
		lease := <-next
		w.wantHolds("job", "1", lease)
		mustUnlock(t, lease)
		w.free()
	})
}

// The watchdog is slow to learn that the lock was forced; what the owner has taken since is another matter.
func TestDeniedRenewalSparesALaterHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var s thoughtful
		c := w.clientOn(conn.Config{Trace: s.trace()}, lock.Config{})
		owner := c.NewOwner()
		first := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(9 * time.Second)
		w.srv.Do("DEL", "job")
		s.next.Store(true)
		time.Sleep(time.Second + 50*time.Millisecond)
		second := mustLock(t, c, "job", lock.As(owner))
		time.Sleep(time.Second)
		lostBecause(t, first.Err(), lock.Forced)
		wantErr(t, "Unlock", first.Unlock(t.Context()), lock.ErrNotHeld)
		w.wantHolds("job", "1", second)
		mustUnlock(t, second)
		w.free()
	})
}
