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

// The lock's name alone leads to its holders and to the process behind them, of any kind.
func TestInspect(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		shapes := map[string]lock.Shape{
			"reentrant": lock.ShapeLock, "nonreentrant": lock.ShapeLock, "spin": lock.ShapeLock, "fenced": lock.ShapeFenced,
			"fair": lock.ShapeLock, "nonreentrantfair": lock.ShapeLock, "read": lock.ShapeReadWrite, "write": lock.ShapeReadWrite,
			"plain": lock.ShapePlain, "permits": lock.ShapePermits, "fastermulti": lock.ShapeFasterMulti,
		}
		for kind, take := range leasedKinds(t, mine) {
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.sleep(5 * time.Second)
			seen, err := c.Inspect(t.Context(), name)
			if err != nil || seen.Name != name || seen.Shape != shapes[kind] || len(seen.Info.Holders) != 1 || seen.Info.Holders[0].Owner != lease.Owner() {
				t.Errorf("%s: Inspect() = %+v, %v", kind, seen, err)
			}
			switch {
			case kind == "plain" || kind == "permits":
				if len(seen.Clients) != 0 {
					t.Errorf("%s: clients %+v", kind, seen.Clients)
				}
			case len(seen.Clients) != 1 || !seen.Clients[0].Connected || seen.Clients[0].Name != "web-7" || seen.Clients[0].ID != mine.ID() || seen.Clients[0].Addr == "":
				t.Errorf("%s: clients %+v, %v", kind, seen.Clients, seen.ClientsErr)
			}
			if seen.Info.Token != lease.Token() {
				t.Errorf("%s: token %d, want %d", kind, seen.Info.Token, lease.Token())
			}
			mustUnlock(t, lease)
			w.srv.Do("DEL", "redisson_lock_token:{job}")
		}
		if seen, err := c.Inspect(t.Context(), "job"); err != nil || seen.Shape != "" || seen.Info.Locked {
			t.Errorf("Inspect() of a free lock = %+v, %v", seen, err)
		}
		w.srv.Do("SET", "number", "3")
		if seen, err := c.Inspect(t.Context(), "number"); err != nil || seen.Shape != lock.ShapeNumber || seen.Info.Permits.Free != 3 {
			t.Errorf("Inspect() of a number = %+v, %v", seen, err)
		}
		w.srv.Do("RPUSH", "list", "3")
		if seen, err := c.Inspect(t.Context(), "list"); err != nil || seen.Shape != lock.ShapeOther {
			t.Errorf("Inspect() of a list = %+v, %v", seen, err)
		}
		_, err := c.Inspect(t.Context(), "a{b")
		wantErr(t, "Inspect of a bad name", err, lock.ErrInvalid)
	})
}

func TestInspectWaiters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, a, b := w.client(lock.Config{Name: "holder"}), w.client(lock.Config{Name: "a"}), w.client(lock.Config{Name: "b"})
		lease, next := mustLock(t, holder, "job"), make(chan *lock.Lease)
		for _, c := range []*lock.Client{a, a, b} {
			go func() { next <- mustLock(t, c, "job") }()
		}
		synctest.Wait()
		seen, err := holder.Inspect(t.Context(), "job")
		if err != nil || seen.Listening != 2 {
			t.Errorf("Inspect() = %+v, %v, want two clients listening", seen, err)
		}
		mustUnlock(t, lease)
		for range 3 {
			mustUnlock(t, <-next)
		}
		// Another client's holder that is not connected, as Redisson's are not by name.
		w.srv.Do("HSET", "java", "c0ffee00-0000-4000-8000-000000000000:41", "1")
		w.srv.Do("PEXPIRE", "java", "30000")
		seen, err = holder.Inspect(t.Context(), "java")
		if err != nil || len(seen.Clients) != 1 || seen.Clients[0].Connected || seen.Clients[0].ID != "c0ffee00-0000-4000-8000-000000000000" {
			t.Errorf("Inspect() = %+v, %v", seen, err)
		}
		lease = mustLockFair(t, holder)
		queued := w.waiter(a)
		synctest.Wait()
		seen, err = b.Inspect(t.Context(), "job")
		if err != nil || seen.Shape != lock.ShapeFair || len(seen.Clients) != 2 || seen.Clients[0].Name != "holder" || seen.Clients[1].Name != "a" {
			t.Errorf("Inspect() = %+v, %v", seen, err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-queued)
	})
}

// Of each kind: only the named owner loses the lock, its process is told, and others stay.
func TestForceUnlockOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		for kind, take := range leasedKinds(t, mine) {
			if kind == "fastermulti" {
				continue // see TestForceUnlockOwnerOfAGroup
			}
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []string{c.NewOwner().String(), "", "0123456789abcdef0123456789abcdef"} {
				if forced, err := c.ForceUnlockOwner(t.Context(), name, other); forced || err != nil {
					t.Errorf("%s: ForceUnlockOwner(%q) = %v, %v", kind, other, forced, err)
				}
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v", kind, err)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lostBecause(t, lease.Check(t.Context()), lock.Forced)
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); forced || err != nil {
				t.Errorf("%s: a second ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lease, err = take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if forced, err := mine.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lostBecause(t, lease.Err(), lock.Forced)
		}
		w.srv.Do("RPUSH", "list", "3")
		_, err := c.ForceUnlockOwner(t.Context(), "list", "x")
		wantErr(t, "ForceUnlockOwner of a list", err, lock.ErrWrongType)
		w.sleep(time.Minute)
		w.srv.Do("DEL", "list", "permits", "redisson_lock_token:{job}")
		w.free()
	})
}

// Waiters get the lock at once; other readers and permits stay.
func TestForceUnlockOwnerAmongOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLockFair(t, mine)
		queued := w.waiter(c)
		synctest.Wait()
		start := time.Now()
		if forced, err := c.ForceUnlockOwner(t.Context(), "job", lease.Owner()); !forced || err != nil {
			t.Fatal(forced, err)
		}
		mustUnlock(t, <-queued)
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("the waiter got the lock after %v", waited)
		}
		owner := mine.NewOwner()
		rw := mine.ReadWrite("rw")
		var reads []*lock.Lease
		for _, opts := range [][]lock.Option{{lock.As(owner)}, {lock.As(owner)}, nil} {
			l, err := rw.Read().Lock(t.Context(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			reads = append(reads, l)
		}
		if forced, err := c.ForceUnlockOwner(t.Context(), "rw", owner.String()); !forced || err != nil {
			t.Fatal(forced, err)
		}
		wantErr(t, "Check of the first hold", reads[0].Check(t.Context()), lock.ErrLost)
		wantErr(t, "Check of the second hold", reads[1].Check(t.Context()), lock.ErrLost)
		if err := reads[2].Check(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, reads[2])
		w.sleep(time.Minute)
		w.free()
	})
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
