package lock_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/lockwire/lockwire/resp"
)

func TestExtend(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for kind, take := range leasedKinds(t, c) {
			lease, err := take(t.Context(), lock.For(10*time.Second))
			if err != nil {
				t.Fatal(kind, err)
			}
			lost := lease.Lost()
			w.sleep(9 * time.Second)
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Fatalf("%s: Extend() = %v", kind, err)
			}
			if left, want := time.Until(lease.ValidUntil()), time.Minute-602*time.Millisecond; left != want {
				t.Errorf("%s: valid for %v, want %v", kind, left, want)
			}
			if err := lease.Extend(t.Context(), time.Second); err != nil {
				t.Fatalf("%s: Extend() = %v", kind, err)
			}
			w.sleep(59 * time.Second)
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v, want the lease to last", kind, err)
			}
			<-lost
			lostBecause(t, lease.Err(), lock.Expired)
			lostBecause(t, lease.Extend(t.Context(), time.Minute), lock.Expired)
			w.sleep(time.Second)
		}
	})
}

func TestExtendRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		wantErr(t, "Extend of a renewed lease", lease.Extend(t.Context(), time.Minute), lock.ErrInvalid)
		mustUnlock(t, lease)

		lease = mustLock(t, c, "job", lock.For(time.Minute))
		wantErr(t, "Extend by nothing", lease.Extend(t.Context(), 0), lock.ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Extend under a done context", lease.Extend(ctx, time.Hour), context.Canceled)
		mustUnlock(t, lease)
		wantErr(t, "Extend after Unlock", lease.Extend(t.Context(), time.Hour), lock.ErrReleased)

		lease = mustLock(t, c, "job", lock.For(time.Minute))
		w.srv.Do("DEL", "job")
		lostBecause(t, lease.Extend(t.Context(), time.Hour), lock.Forced)
		other := mustLock(t, c, "job", lock.For(time.Minute))
		lostBecause(t, lease.Extend(t.Context(), time.Hour), lock.Forced)
		if left := w.ttl("job"); left > time.Minute {
			t.Errorf("the lease of another owner is extended to %v", left)
		}
		mustUnlock(t, other)
		w.free()
	})
}

// The answer comes after the end: the holder has been told of its loss, and stays so. Unlock frees what the server keeps.
func TestExtendAnsweredTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(2*time.Second))
		w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Run().Late(3 * time.Second) })
		lostBecause(t, lease.Extend(t.Context(), time.Hour), lock.Expired)
		if left := w.ttl("job"); left < 30*time.Minute {
			t.Fatalf("the server has the lock for %v", left)
		}
		mustUnlock(t, lease)
		w.sleep(latchLife)
		w.free()
	})
}

// Without an answer the lease ends when it would have, but the server may have it for longer: a release is repeated for as
// long.
func TestExtendWithoutAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(10*time.Second))
		until := lease.ValidUntil()
		w.onScript("renew", func(int) fakeredis.Action { return fakeredis.RunThenClose() })
		if err := lease.Extend(t.Context(), time.Hour); err == nil || lease.Err() != nil {
			t.Fatalf("Extend() = %v, Err() = %v", err, lease.Err())
		}
		if got := lease.ValidUntil(); got.Sub(until).Abs() > time.Millisecond {
			t.Errorf("valid until %v, want %v", got, until)
		}
		w.srv.Intercept(nil)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(time.Minute)
		w.srv.Refuse(false)
		w.sleep(10 * time.Second)
		if n := w.srv.Do("EXISTS", "job"); n != int64(0) {
			t.Errorf("the lock is still taken, for %v", w.ttl("job"))
		}
	})
}

// A release that begins during Extend waits for it, and nothing is extended afterwards.
func TestExtendBesideUnlock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(10*time.Second))
		gate, extended := make(chan struct{}), make(chan error)
		w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Wait(gate, fakeredis.Run()) })
		for range 2 {
			go func() { extended <- lease.Extend(t.Context(), time.Hour) }()
		}
		synctest.Wait()
		unlocked := make(chan error)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		synctest.Wait()
		close(gate)
		for range 2 {
			wantErr(t, "Extend", <-extended, lock.ErrReleased)
		}
		if err := <-unlocked; err != nil {
			t.Fatal(err)
		}
		w.sleep(latchLife)
		w.free()
	})
}

func TestExtendWithinAtMost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.For(10*time.Second), lock.AtMost(15*time.Second))
		w.sleep(5 * time.Second)
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		synctest.Wait()
		if c.Stats().Lost != 1 {
			t.Error("the loss is not noticed by itself")
		}
		lostBecause(t, lease.Extend(t.Context(), time.Minute), lock.HeldTooLong)
		mustUnlock(t, lease)
	})
}

func TestExtendMembers(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		red := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false), lock.For(5*time.Second))
		synctest.Wait() // for the vote that came behind the majority
		multi := lockMulti(t, newMulti(t, p[0].Reentrant("a"), p[1].Fair("b"), p[2].Plain("c")), lock.For(5*time.Second))
		wantErr(t, "Extend beyond the quarantine", red.Extend(t.Context(), time.Minute), lock.ErrInvalid)
		for _, lease := range []*lock.Lease{red, multi} {
			if err := lease.Extend(t.Context(), 20*time.Second); err != nil {
				t.Fatalf("%s: Extend() = %v", lease.Kind(), err)
			}
		}
		time.Sleep(15 * time.Second)
		for _, lease := range []*lock.Lease{red, multi} {
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v", lease.Kind(), err)
			}
		}
		f[2].srv.Refuse(true)
		f[2].srv.KillConns(nil)
		if err := red.Extend(t.Context(), 20*time.Second); err != nil {
			t.Errorf("Extend() with a majority = %v", err)
		}
		if err := multi.Extend(t.Context(), 20*time.Second); err == nil {
			t.Error("Extend() of a Multi without one of its servers succeeded")
		}
		f[2].srv.Refuse(false)
		mustUnlock(t, red)
		time.Sleep(time.Minute)
		_ = multi.Unlock(t.Context())
	})
}

// slow is a Pool that sends the next command or batch, once told so, a second after its caller has made it.
type slow struct {
	*conn.Pool
	next, batch atomic.Bool
}

// onSlowServer returns a slow server and a client of it. The end of the test closes both.
func (w *world) onSlowServer() (*slow, *lock.Client) {
	w.t.Helper()
	server := &slow{Pool: w.pool(conn.Config{})}
	c, err := lock.New(server, lock.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close(); server.Close() })
	return server, c
}

func (s *slow) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if s.batch.CompareAndSwap(true, false) {
		time.Sleep(time.Second)
	}
	return s.Pool.SendBatch(ctx, cmds)
}

func (s *slow) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	if s.next.CompareAndSwap(true, false) {
		time.Sleep(time.Second)
	}
	return s.Pool.Send(ctx, cmd)
}

// The release of an inner hold goes back to the lease of the outer one: an Extend of the outer hold at that time lasts.
func TestExtendBesideAnInnerUnlock(t *testing.T) {
	for name, job := range map[string]func(c *lock.Client) goldenLock{
		"Reentrant": func(c *lock.Client) goldenLock { return c.Reentrant("job") },
		"Group":     func(c *lock.Client) goldenLock { return c.FasterMulti("job", "1", "2") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				server, c := w.onSlowServer()
				owner := lock.As(c.NewOwner())
				outer := mustHave(t, job(c), owner, lock.For(10*time.Second))
				inner := mustHave(t, job(c), owner)
				server.next.Store(true)
				done := make(chan error)
				go func() { done <- inner.Unlock(t.Context()) }()
				synctest.Wait()
				if err := outer.Extend(t.Context(), time.Hour); err != nil {
					t.Errorf("Extend() = %v", err)
				}
				if err := <-done; err != nil {
					t.Errorf("Unlock() = %v", err)
				}
				w.sleep(time.Minute)
				if err := outer.Check(t.Context()); err != nil || w.ttl("job") < time.Until(outer.ValidUntil()) {
					t.Errorf("%v, the key stays for %v, and the lease is valid for %v", err, w.ttl("job"), time.Until(outer.ValidUntil()))
				}
				mustUnlock(t, outer)
			})
		})
	}
}

// refuses has the server refuse each script about the lock of a name for the time being: a release is repeated.
func (w *world) refuses(name string) {
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if strings.HasPrefix(cmd.Name, "EVAL") && slices.Contains(cmd.Args, name) {
			return fakeredis.Reply("-OOM command not allowed when used memory > 'maxmemory'.\r\n")
		}
		return fakeredis.Run()
	})
}

// An Owner's lease that has ended is told at once, also beside a release without an answer.
func TestExtendOfAnEndedHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustHave(t, c.Reentrant("job"), lock.For(time.Hour), lock.As(c.NewOwner()))
		w.refuses("job")
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		begin := time.Now()
		wantErr(t, "Extend", lease.Extend(t.Context(), time.Hour), lock.ErrReleased)
		if took := time.Since(begin); took > 0 {
			t.Errorf("Extend of a released lease took %v", took)
		}
		w.srv.Intercept(nil)
		w.sleep(latchLife)
	})
}

// Extend waits for the release of an inner hold, without an answer, no longer than the lease is held.
func TestExtendUntilTheHoldEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, outer *lock.Lease) error{
		"released": func(w *world, outer *lock.Lease) error {
			go outer.Unlock(w.t.Context())
			return lock.ErrReleased
		},
		"forced": func(w *world, outer *lock.Lease) error {
			w.srv.Intercept(nil)
			w.clients[0].Reentrant("job").ForceUnlock(w.t.Context())
			return outer.Err()
		},
		"expired": func(w *world, outer *lock.Lease) error {
			w.sleep(time.Until(outer.ValidUntil()))
			return outer.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer := mustHave(t, c.Reentrant("job"), owner, lock.For(time.Hour))
				inner := mustHave(t, c.Reentrant("job"), owner, lock.For(time.Hour))
				w.refuses("job")
				wantErr(t, "Unlock", inner.Unlock(t.Context()), lock.ErrUncertain)
				extended := make(chan error, 1)
				go func() { extended <- outer.Extend(context.Background(), 2*time.Hour) }()
				w.sleep(time.Second)
				want := end(w, outer)
				synctest.Wait()
				select {
				case err := <-extended:
					wantErr(t, "Extend", err, want)
				default:
					t.Errorf("Extend still waits, and the lease is over: %v", outer.Err())
				}
				w.srv.Intercept(nil)
				w.sleep(time.Hour)
			})
		})
	}
}

// The release of a lock, without an answer, does not keep an Owner from other locks.
func TestOwnerBesideAReleaseWithoutAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		stuck := mustHave(t, c.Reentrant("stuck"), owner, lock.For(time.Hour))
		lease := mustHave(t, c.Reentrant("job"), owner, lock.For(10*time.Second))
		w.refuses("stuck")
		begin := time.Now()
		wantErr(t, "Unlock", stuck.Unlock(t.Context()), lock.ErrUncertain)
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend() = %v", err)
		}
		mustUnlock(t, mustHave(t, c.Reentrant("job"), owner))
		mustUnlock(t, lease)
		if took := time.Since(begin); took > 0 {
			t.Errorf("the other lock took %v", took)
		}
		w.srv.Intercept(nil)
		w.sleep(latchLife)
		w.free()
	})
}

// Leases of an Owner on several locks are extended at once, by themselves and in a Multi.
func TestExtendManyAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(50 * time.Millisecond)
		owner := lock.As(c.NewOwner())
		leases := []*lock.Lease{lockMulti(t, newMulti(t, c.Reentrant("a"), c.Reentrant("b"), c.Reentrant("c")), owner, lock.For(time.Minute))}
		for i := range 10 {
			leases = append(leases, mustHave(t, c.Reentrant(fmt.Sprint(i)), owner, lock.For(time.Minute)))
		}
		begin := time.Now()
		var extends sync.WaitGroup
		for _, l := range leases {
			extends.Go(func() {
				if err := l.Extend(t.Context(), 2*time.Minute); err != nil {
					t.Errorf("Extend() = %v", err)
				}
			})
		}
		extends.Wait()
		if took := time.Since(begin); took > 150*time.Millisecond {
			t.Errorf("%d leases took %v", len(leases), took)
		}
		for _, l := range leases {
			mustUnlock(t, l)
		}
		w.sleep(latchLife)
		w.free()
	})
}

func mustDowngrade(t *testing.T, l *lock.Lease) *lock.Lease {
	t.Helper()
	read, err := l.Downgrade(t.Context())
	if err != nil {
		t.Fatalf("Downgrade() = %v", err)
	}
	return read
}

func TestDowngrade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		write := mustWrite(t, c)
		ctx, cancel := write.Context(t.Context())
		defer cancel()
		w.sleep(5 * time.Second)
		read := mustDowngrade(t, write)
		if got := read.Owner() + ":write"; got != write.Owner() {
			t.Errorf("the read lock's owner is %s, the write lock's %s", read.Owner(), write.Owner())
		}
		wantErr(t, "Err of the write lease", write.Err(), lock.ErrReleased)
		wantErr(t, "the cause of its context", context.Cause(ctx), lock.ErrReleased)
		mustUnlock(t, write) // as a deferred one would
		_, err := write.Downgrade(t.Context())
		wantErr(t, "Downgrade of a lease that is over", err, lock.ErrReleased)
		_, err = read.Downgrade(t.Context())
		wantErr(t, "Downgrade of a read lock", err, lock.ErrInvalid)
		mustUnlock(t, mustRead(t, other))
		for range 3 { // it is renewed as the write lock was
			w.sleep(time.Minute)
			synctest.Wait()
			if err := read.Check(t.Context()); err != nil {
				t.Fatalf("Check() = %v", err)
			}
		}
		isTaken(t, other.ReadWrite("job").Write())
		mustUnlock(t, read)
		if got := c.Stats(); got.Leases != 0 || got.Acquired != 2 || got.Released != 2 || got.Lost != 0 {
			t.Errorf("Stats() = %+v", got)
		}
		w.free()
	})
}

// A fixed lease ends when the write lease would have.
func TestDowngradeOfAFixedLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		write := mustWrite(t, c, lock.For(10*time.Second))
		w.sleep(4 * time.Second)
		read := mustDowngrade(t, write)
		if got := w.ttl("job"); got != 6*time.Second {
			t.Errorf("the read lock lasts %v, want 6s", got)
		}
		<-read.Lost()
		lostBecause(t, read.Err(), lock.Expired)
		_, err := mustWrite(t, c, lock.For(lock.MinLease)).Downgrade(t.Context())
		if err != nil {
			t.Errorf("Downgrade() of the shortest lease = %v", err)
		}
		late := mustWrite(t, c, lock.For(time.Second))
		w.sleep(2 * time.Second)
		_, err = late.Downgrade(t.Context())
		lostBecause(t, err, lock.Expired)
		w.free()
	})
}

// An owner's other holds stay what they are: the lock is for reading when the last write hold has gone.
func TestDowngradeOfOneOfSeveral(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustWrite(t, c, lock.As(owner), lock.For(time.Hour))
		inner := mustWrite(t, c, lock.As(owner), lock.For(2*time.Hour))
		before := mustRead(t, c, lock.As(owner), lock.For(time.Minute))
		read := mustDowngrade(t, inner)
		isTaken(t, other.ReadWrite("job").Read())
		if got := w.ttl("job"); got != 2*time.Hour {
			t.Errorf("the lock lasts %v, want 2h", got)
		}
		second := mustDowngrade(t, outer)
		beside := mustRead(t, other, lock.For(time.Second))
		mustUnlock(t, read)
		if got := w.ttl("job"); got != time.Hour {
			t.Errorf("the lock lasts %v, want 1h", got)
		}
		mustUnlock(t, second)
		mustUnlock(t, before)
		mustUnlock(t, beside)
		w.free()
	})
}

// Whatever becomes of the request, and whatever else the owner has: when Downgrade fails nothing of the hold is left, and the
// owner's other holds are.
func TestDowngradeWithoutAnAnswer(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"lost":    fakeredis.RunThenClose(),
		"never":   fakeredis.Close(),
		"late":    fakeredis.Delay(2*time.Second, fakeredis.Run()),
		"refused": fakeredis.Reply("-OOM command not allowed\r\n"),
		"strange": fakeredis.Reply("+what\r\n"),
		"slow":    fakeredis.Run().Late(time.Hour),
	} {
		for _, others := range []string{"none", "write", "read", "both"} {
			t.Run(name+", others "+others, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { downgradeFails(t, w, action, others) })
			})
		}
	}
}

func downgradeFails(t *testing.T, w *world, action fakeredis.Action, others string) {
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	owner := c.NewOwner()
	var opts []lock.Option
	var rest []*lock.Lease
	if others != "none" {
		opts = append(opts, lock.As(owner))
	}
	if others == "write" || others == "both" {
		rest = append(rest, mustWrite(t, c, lock.As(owner)))
	}
	write := mustWrite(t, c, opts...)
	if others == "read" || others == "both" {
		rest = append(rest, mustRead(t, c, lock.As(owner)))
	}
	w.onScriptOf("write", "downgrade", func(int) fakeredis.Action { return action })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	read, err := write.Downgrade(ctx)
	cancel()
	if read != nil || !errors.Is(err, lock.ErrUncertain) {
		t.Fatalf("Downgrade() = %v, %v, want ErrUncertain", read, err)
	}
	w.srv.Intercept(nil)
	wantErr(t, "Unlock", write.Unlock(t.Context()), lock.ErrUncertain)
	w.sleep(10 * time.Second)
	if len(rest) == 0 {
		mustUnlock(t, mustWrite(t, other))
	} else {
		isTaken(t, other.ReadWrite("job").Write())
	}
	if others == "read" {
		mustUnlock(t, mustRead(t, other))
	}
	for half, want := range map[string]bool{"read": others == "read" || others == "both", "write": others == "write" || others == "both"} {
		info, err := halves(c)[half].Info(t.Context())
		if err != nil || info.Locked != want || want && info.Holders[0].Holds != 1 {
			t.Errorf("%s half: %+v, %v", half, info, err)
		}
	}
	for _, l := range rest {
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("Check() of another hold = %v", err)
		}
		mustUnlock(t, l)
	}
	w.sleep(latchLife)
	w.free()
}

func TestDowngradeOfWhatIsNotHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		for _, opts := range [][]lock.Option{nil, {lock.As(owner)}} {
			write := mustWrite(t, c, opts...)
			w.srv.Do("DEL", "job")
			taker := mustWrite(t, other)
			_, err := write.Downgrade(t.Context())
			wantErr(t, "Downgrade", err, lock.ErrNotHeld)
			wantErr(t, "Unlock", write.Unlock(t.Context()), lock.ErrNotHeld)
			mustUnlock(t, taker)
		}
		write := mustWrite(t, c, lock.As(owner))
		ended, end := context.WithCancel(t.Context())
		end()
		_, err := write.Downgrade(ended)
		wantErr(t, "Downgrade under an ended context", err, context.Canceled)
		if err := write.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want the lease untouched", err)
		}
		mustUnlock(t, write)
		w.free()
	})
}

// A client that is closed meanwhile has neither.
func TestDowngradeAndClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		write := mustWrite(t, c)
		w.onScriptOf("write", "downgrade", func(int) fakeredis.Action { return fakeredis.Run().Late(time.Second) })
		go func() {
			w.sleep(500 * time.Millisecond)
			c.Close()
		}()
		if _, err := write.Downgrade(context.WithoutCancel(t.Context())); err == nil {
			t.Error("Downgrade() on a closed client succeeded")
		}
		w.sleep(latchLife)
		w.free()
	})
}
