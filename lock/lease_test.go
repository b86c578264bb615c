package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// Leases for a fixed time need no Unlock, and are forgotten when they end.
func TestEndedLeasesAreForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		for i := range 100 {
			mustLock(t, c, fmt.Sprint(i), lock.For(time.Second))
			mustLock(t, c, fmt.Sprint("owned", i), lock.For(time.Second), lock.As(owner))
		}
		w.sleep(time.Hour)
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
		w.sleep(2 * time.Second)
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

// leasedKinds are locks named job, by kind, of every kind with leases.
func leasedKinds(t *testing.T, c *lock.Client) map[string]func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	t.Helper()
	permits := c.PermitSemaphore("permits")
	if _, err := permits.TrySetPermits(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	return map[string]func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error){
		"reentrant":        c.Reentrant("job").Lock,
		"nonreentrant":     c.NonReentrant("job").Lock,
		"spin":             c.Spin("job", lock.Backoff{}).Lock,
		"fenced":           c.Fenced("job").Lock,
		"fair":             c.Fair("job").Lock,
		"nonreentrantfair": c.NonReentrantFair("job").Lock,
		"read":             c.ReadWrite("job").Read().Lock,
		"write":            c.ReadWrite("job").Write().Lock,
		"plain":            c.Plain("job").Lock,
		"fastermulti":      c.FasterMulti("job", "1", "2").Lock,
		"permits":          permits.Acquire,
	}
}

// Of each kind: the loss is told at the limit, with its reason, while the server still keeps the lock, and Unlock frees it.
func TestAtMost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for kind, take := range leasedKinds(t, c) {
			for _, watched := range []bool{true, false} {
				lease, err := take(t.Context(), lock.AtMost(42*time.Second))
				if err != nil {
					t.Fatal(kind, err)
				}
				ctx, cancel := context.Background(), context.CancelFunc(func() {})
				if watched {
					ctx, cancel = lease.Context(ctx)
				}
				lost := c.Stats().Lost
				w.sleep(42*time.Second - time.Millisecond)
				if lease.Err() != nil || ctx.Err() != nil || lease.Check(t.Context()) != nil {
					t.Fatalf("%s: Err() = %v before the limit", kind, lease.Err())
				}
				w.sleep(time.Millisecond)
				synctest.Wait()
				if c.Stats().Lost != lost+1 {
					t.Errorf("%s: the loss is not noticed by itself", kind)
				}
				lostBecause(t, lease.Err(), lock.HeldTooLong)
				if watched {
					lostBecause(t, context.Cause(ctx), lock.HeldTooLong)
				}
				cancel()
				if keys := w.srv.Do("EXISTS", "job", "{permits}:timeout"); keys != int64(1) {
					t.Errorf("%s: the lock is given up before its holder had time to stop", kind)
				}
				mustUnlock(t, lease)
				if keys := w.srv.Do("EXISTS", "job", "{permits}:timeout"); keys != int64(0) {
					t.Errorf("%s: Unlock has left the lock", kind)
				}
			}
		}
	})
}

// A lease that nobody remembers ends on the server within a lease after its limit.
func TestAtMostOfAForgottenLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{AtMost: time.Minute})
		mustLock(t, c, "job")
		w.sleep(90 * time.Second)
		if n := w.srv.Do("EXISTS", "job"); n != int64(0) {
			t.Errorf("the lock is still taken, for %v", w.ttl("job"))
		}
		if n := c.Stats().Leases; n != 0 {
			t.Errorf("%d leases are held", n)
		}
		lease := mustLock(t, c, "job", lock.AtMost(0))
		w.sleep(time.Hour)
		mustUnlock(t, lease)
		w.free()
	})
}

// The limit is each hold's own, and a lock that is passed on within a process starts anew.
func TestAtMostOfOwnersAndSuccessors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		inner := mustLock(t, c, "job", lock.As(owner), lock.AtMost(time.Minute))
		w.sleep(2 * time.Minute)
		lostBecause(t, inner.Err(), lock.HeldTooLong)
		mustUnlock(t, inner)
		w.wantHolds("job", "1", outer)
		mustUnlock(t, outer)

		first := mustLock(t, c, "job", lock.AtMost(30*time.Second))
		w.sleep(29 * time.Second)
		next := make(chan *lock.Lease)
		go func() { next <- mustLock(t, c, "job", lock.AtMost(30*time.Second)) }()
		synctest.Wait()
		mustUnlock(t, first)
		second := <-next
		w.sleep(29 * time.Second)
		w.wantHolds("job", "1", second)
		w.sleep(time.Second)
		lostBecause(t, second.Err(), lock.HeldTooLong)
		mustUnlock(t, second)

		write, err := c.ReadWrite("rw").Write().Lock(t.Context(), lock.AtMost(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(20 * time.Second)
		read, err := write.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		lostBecause(t, read.Err(), lock.HeldTooLong)
		mustUnlock(t, read)
		w.free()
	})
}

// The server hangs: contexts end so long before the lease, which is then still held.
func TestStopBefore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{StopBefore: 5 * time.Second})
		for kind, take := range leasedKinds(t, c) {
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(kind, err)
			}
			ctx, cancel := lease.Context(t.Context())
			w.sleep(time.Minute)
			if ctx.Err() != nil {
				t.Fatalf("%s: the context has ended though the lease is renewed: %v", kind, context.Cause(ctx))
			}
			w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Swallow() })
			<-ctx.Done()
			cancel()
			if left := time.Until(lease.ValidUntil()); left != 5*time.Second {
				t.Errorf("%s: the context ended %v before the lease", kind, left)
			}
			lostBecause(t, context.Cause(ctx), lock.Ending)
			if lease.Err() != nil {
				t.Errorf("%s: Err() = %v, want the lock still held", kind, lease.Err())
			}
			again, cancel := lease.Context(t.Context())
			lostBecause(t, context.Cause(again), lock.Ending)
			cancel()
			<-lease.Lost()
			if left := time.Until(lease.ValidUntil()); left != 0 {
				t.Errorf("%s: lost %v before its end", kind, left)
			}
			w.srv.Intercept(nil)
			w.sleep(time.Minute)
			_ = lease.Unlock(t.Context())
		}
	})
}

// A renewal in the last moment keeps the lock: new contexts end when they must, also by the timer of an earlier one.
func TestStopBeforeAfterRecovery(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.StopBefore(19*time.Second))
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		<-ctx.Done()
		w.srv.Refuse(false)
		w.sleep(2 * time.Second)
		if left := time.Until(lease.ValidUntil()); left < 25*time.Second {
			t.Fatalf("valid for %v: not renewed", left)
		}
		ctx, cancel = lease.Context(t.Context())
		defer cancel()
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		<-ctx.Done()
		if left := time.Until(lease.ValidUntil()); left != 19*time.Second {
			t.Errorf("the second context ended %v before the lease", left)
		}
		w.srv.Refuse(false)
		w.sleep(2 * time.Second)
		mustUnlock(t, lease)
	})
}

func TestStopBeforeOfMembers(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		for _, take := range []func(context.Context, ...lock.Option) (*lock.Lease, error){
			p.redlock(t, lock.RedlockConfig{}, false).Lock,
			newMulti(t, p[0].Reentrant("a"), p[1].Fair("b"), p[2].Plain("c")).Lock,
		} {
			lease, err := take(t.Context(), lock.StopBefore(time.Second), lock.For(3*time.Second), lock.AtMost(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := lease.Context(t.Context())
			<-ctx.Done()
			if left := time.Until(lease.ValidUntil()); left != time.Second {
				t.Errorf("%s: the context ended %v before the lease", lease.Kind(), left)
			}
			lostBecause(t, context.Cause(ctx), lock.Ending)
			cancel()
			mustUnlock(t, lease)
			lease, err = take(t.Context(), lock.AtMost(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			<-lease.Lost()
			lostBecause(t, lease.Err(), lock.HeldTooLong)
			_ = lease.Unlock(t.Context())
		}
	})
}

func TestBadLimits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for i, opts := range [][]lock.Option{
			{lock.AtMost(-1)}, {lock.AtMost(time.Millisecond)}, {lock.StopBefore(-1)}, {lock.StopBefore(20 * time.Second)},
			{lock.For(time.Second), lock.StopBefore(time.Second)}, {lock.AtMost(time.Second), lock.StopBefore(time.Second)},
		} {
			_, err := c.Reentrant("job").TryLock(t.Context(), opts...)
			wantErr(t, fmt.Sprint("TryLock of case ", i), err, lock.ErrInvalid)
		}
		_, err := c.PermitSemaphore("p").TryAcquire(t.Context(), lock.Forever(), lock.AtMost(time.Hour))
		wantErr(t, "TryAcquire for ever with AtMost", err, lock.ErrInvalid)
		for _, cfg := range []lock.Config{{AtMost: -1}, {StopBefore: 20 * time.Second}, {AtMost: time.Second, StopBefore: 2 * time.Second}} {
			if _, err := lock.New(nil, cfg); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New(%+v) = %v", cfg, err)
			}
		}
	})
}

// The function of Do has the lease, and so its token, in derived contexts too.
func TestLeaseFrom(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		var token int64
		err := c.Fenced("job").Do(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			l := lock.LeaseFrom(ctx)
			token = l.Token()
			if l.Name() != "job" || l.Kind() != "fenced" {
				t.Errorf("Do has the lease %v", l)
			}
			return c.Reentrant("inner").Do(ctx, func(ctx context.Context) error {
				if l := lock.LeaseFrom(ctx); l.Name() != "inner" {
					t.Errorf("the inner Do has the lease %v", l)
				}
				return nil
			})
		})
		if last, _ := c.Fenced("job").Token(t.Context()); err != nil || token == 0 || token != last {
			t.Errorf("Do() = %v with the token %d, want %d", err, token, last)
		}
		if l := lock.LeaseFrom(t.Context()); l != nil {
			t.Errorf("a context without a lease has %v", l)
		}
	})
}

func TestLeaseInWords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.sleep(41 * time.Second)
		want := fmt.Sprintf(`reentrant lock "job", owner %s, held for 41s, renewed, valid for 28.7s`, lease.Owner())
		if got := fmt.Sprint(lease); got != want {
			t.Errorf("the lease prints as %s, want %s", got, want)
		}
		if got, want := logged(lease), fmt.Sprintf(`lease.name=job lease.kind=reentrant lease.owner=%s lease.age=41s lease.state=held `+
			"lease.valid_for=28.7s lease.renewed=true", lease.Owner()); got != want {
			t.Errorf("the lease is logged as %s, want %s", got, want)
		}
		mustUnlock(t, lease)
		if got, want := lease.String(), fmt.Sprintf(`reentrant lock "job", owner %s, released`, lease.Owner()); got != want {
			t.Errorf("String() = %s, want %s", got, want)
		}
		lease = mustLock(t, c, "job", lock.For(time.Minute))
		if got, want := lease.String(), fmt.Sprintf(`reentrant lock "job", owner %s, held for 0s, valid for 59.4s`, lease.Owner()); got != want {
			t.Errorf("String() = %s, want %s", got, want)
		}
		mustUnlock(t, lease)
		if got := logged(lease); !strings.HasSuffix(got, "lease.state=released") {
			t.Errorf("a released lease is logged as %s", got)
		}
		lease, err := c.Fenced("job").Lock(t.Context(), lock.AtMost(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		if got := logged(lease); !strings.Contains(got, "lease.token=") || !strings.HasSuffix(got, `lease.state=lost lease.reason="its time by AtMost is over"`) {
			t.Errorf("a lost lease is logged as %s", got)
		}
	})
}

// logged returns what a logger writes of a lease.
func logged(lease *lock.Lease) string {
	var b strings.Builder
	bare := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key != "lease" {
			return slog.Attr{}
		}
		return a
	}
	slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: bare})).Info("", "lease", lease)
	return strings.TrimSpace(b.String())
}

// A holder in the process that frees its lock by force is told at once, however long it takes to tell others.
func TestForceTellsBeforeOthersAreTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "PUBLISH" {
				return fakeredis.Delay(2*time.Second, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		forced := make(chan error, 1)
		go func() {
			_, err := c.Reentrant("job").ForceUnlock(t.Context())
			forced <- err
		}()
		w.sleep(time.Second)
		lostBecause(t, lease.Err(), lock.Forced)
		if err := <-forced; err != nil {
			t.Errorf("ForceUnlock() = %v", err)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// Nor does it matter that the lock is passed on within the process while the request is under way: it is the same hold on the
// server.
func TestForceTellsTheHeirOfARelay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		first := mustLock(t, c, "job")
		second := make(chan *lock.Lease, 1)
		go func() {
			lease, err := c.Reentrant("job").Lock(t.Context())
			if err != nil {
				t.Errorf("Lock() = %v", err)
			}
			second <- lease
		}()
		synctest.Wait()
		w.srv.Latency(5 * time.Millisecond)
		forced := make(chan error, 1)
		go func() {
			_, err := c.Reentrant("job").ForceUnlock(t.Context())
			forced <- err
		}()
		w.sleep(time.Millisecond)
		mustUnlock(t, first)
		heir := <-second
		if err := <-forced; err != nil || heir == nil || heir.Owner() != first.Owner() {
			t.Fatalf("ForceUnlock() = %v, while the lock passed on from %s to %v", err, first.Owner(), heir)
		}
		lostBecause(t, heir.Err(), lock.Forced)
		wantErr(t, "Unlock", heir.Unlock(t.Context()), lock.ErrNotHeld)
		w.sleep(latchLife)
		w.free()
	})
}

// forciblePermits are permits as a lock that can be freed by force.
type forciblePermits struct{ *lock.PermitSemaphore }

func (p forciblePermits) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.TryAcquire(ctx, opts...)
}

func (p forciblePermits) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.Acquire(ctx, opts...)
}

func (p forciblePermits) ForceUnlock(ctx context.Context) (bool, error) { return p.ReleaseAll(ctx) }

// forces are the kinds that have a script of their own to free a lock by force.
var forces = map[string]func(c *lock.Client) goldenLock{
	"reentrant":   func(c *lock.Client) goldenLock { return c.Reentrant("job") },
	"fair":        func(c *lock.Client) goldenLock { return c.Fair("job") },
	"read":        func(c *lock.Client) goldenLock { return c.ReadWrite("job").Read() },
	"write":       func(c *lock.Client) goldenLock { return c.ReadWrite("job").Write() },
	"plain":       func(c *lock.Client) goldenLock { return c.Plain("job") },
	"permits":     func(c *lock.Client) goldenLock { return forciblePermits{c.PermitSemaphore("job")} },
	"fastermulti": func(c *lock.Client) goldenLock { return c.FasterMulti("job", "1", "2") },
}

// A request to free a lock by force that is held up on its way spares whoever has the lock when it comes at last.
func TestHeldUpForceSparesTheNextHolder(t *testing.T) {
	for kind, of := range forces {
		for _, ahead := range []time.Duration{0, 3 * time.Second, time.Hour} {
			for _, after := range arrivals {
				if after < 6*time.Second {
					continue // as good as any other time until it is late
				}
				t.Run(fmt.Sprint(kind, " ", after, " ", ahead), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						w.srv.Clock(ahead)
						if kind == "permits" {
							w.srv.Do("SET", "job", "1")
						}
						c := w.client(lock.Config{Lease: 3 * time.Hour})
						first := mustHave(t, of(c))
						args := w.holdUp(kind, "force")
						if _, err := of(c).ForceUnlock(t.Context()); !errors.Is(err, conn.ErrUncertain) {
							t.Fatalf("ForceUnlock() without an answer = %v", err)
						}
						late := args()
						mustUnlock(t, first)
						next := mustHave(t, of(c))
						w.sleep(after)
						w.srv.Do(late...)
						if err := next.Check(t.Context()); err != nil {
							t.Errorf("the next holder: %v", err)
						}
						mustUnlock(t, next)
						if kind == "permits" {
							w.srv.Do("DEL", "job")
						}
						w.sleep(latchLife)
						w.free()
					})
				})
			}
		}
	}
}

// A holder is told of a forced unlock although its caller has no answer, or does not wait for the announcement.
func TestForceTellsWithoutItsCaller(t *testing.T) {
	for name, force := range map[string]struct {
		unlock func(ctx context.Context, c *lock.Client, owner string) (bool, error)
		script string
	}{
		"any owner": {forceJob, "force"},
		"an owner":  {forceOwnerOfJob, "undo"},
	} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " answered ", answered), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c, other := w.listening(), w.client(lock.Config{})
					lease := mustLock(t, c, "job")
					w.sleep(time.Second)
					digest := kinds.All()["reentrant"][force.script].Digest()
					var left atomic.Bool
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						switch {
						case left.Load():
						case answered && cmd.Name == "PUBLISH":
							left.Store(true)
							return fakeredis.Delay(200*time.Millisecond, fakeredis.Reply(":0\r\n"))
						case !answered && len(cmd.Args) > 1 && cmd.Args[1] == digest:
							left.Store(true)
							return fakeredis.RunThenClose()
						}
						return fakeredis.Run()
					})
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					_, err := force.unlock(ctx, other, lease.Owner())
					if !left.Load() || answered != (err == nil) {
						t.Errorf("forced: %v", err)
					}
					w.sleep(500 * time.Millisecond)
					lostBecause(t, lease.Err(), lock.Forced)
					w.sleep(latchLife)
					w.free()
				})
			})
		}
	}
}

// A holder is told of a forced unlock although the message comes before the answer to its acquire.
func TestForceTellsBeforeTheGrant(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"renewed": nil, "fixed": {lock.For(20 * time.Second)}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.listening()
				other := mustLock(t, c, "other")
				w.sleep(time.Second)
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					return fakeredis.Delay(100*time.Millisecond, fakeredis.Reply("$-1\r\n")) // granted, and forced since
				})
				time.AfterFunc(50*time.Millisecond, func() { w.srv.Do("PUBLISH", kinds.ForcedChannel, "job") })
				lease := mustLock(t, c, "job", opts...)
				w.srv.Intercept(nil)
				w.sleep(time.Second)
				lostBecause(t, lease.Err(), lock.Forced)
				mustUnlock(t, other)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// listening returns a client that listens for forced unlocks.
func (w *world) listening() *lock.Client {
	w.t.Helper()
	pool := w.pool(conn.Config{})
	c, err := lock.New(pool, lock.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine.Run(c)
	w.pools, w.clients = append(w.pools, pool), append(w.clients, c)
	return c
}

func forceJob(ctx context.Context, c *lock.Client, _ string) (bool, error) {
	return c.Reentrant("job").ForceUnlock(ctx)
}

func forceOwnerOfJob(ctx context.Context, c *lock.Client, owner string) (bool, error) {
	return c.ForceUnlockOwner(ctx, "job", owner)
}
