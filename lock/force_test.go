package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

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
