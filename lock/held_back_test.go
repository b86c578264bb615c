package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// heldBack are the acquires of all kinds: of a lock, or of one permit of one. Each returns what gives it back.
func heldBack() map[string]func(ctx context.Context, c *lock.Client) (give func(context.Context) error, err error) {
	type taker = func(ctx context.Context, c *lock.Client) (give func(context.Context) error, err error)
	all := make(map[string]taker)
	for i, name := range []string{"Reentrant", "Fenced", "Fair", "NonReentrant", "NonReentrantFair", "Spin", "Plain", "Read", "Write"} {
		all[name] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
			lease, err := everyKind(c)[i].(goldenLock).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}
	}
	all["PermitSemaphore"] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
		lease, err := c.PermitSemaphore("permits").Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	all["Semaphore"] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
		err := c.Semaphore("semaphore").Acquire(ctx, 1)
		return func(ctx context.Context) error { return c.Semaphore("semaphore").Release(ctx, 1) }, err
	}
	return all
}

// Four clients wait for a lock, and the server holds their acquires back from its release on: for a while, until nobody wants them any
// more, or for ever. What the clients send is bounded, and the lock is free in the end.
func TestAcquiresHeldBack(t *testing.T) {
	for name, take := range heldBack() {
		for _, ends := range []string{"released", "cancelled", "never"} {
			t.Run(name+", "+ends, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { w.holdBack(take, ends) })
			})
		}
	}
}

func (w *world) holdBack(take func(ctx context.Context, c *lock.Client) (func(context.Context) error, error), ends string) {
	t := w.t
	holder := w.client(lock.Config{})
	if _, err := holder.Semaphore("semaphore").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.PermitSemaphore("permits").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	give, err := take(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		c := w.client(lock.Config{})
		wg.Go(func() {
			if give, err := take(ctx, c); err == nil {
				_ = give(context.WithoutCancel(ctx))
			}
		})
	}
	w.sleep(100 * time.Millisecond)
	gate := make(chan struct{})
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if isAcquire(cmd) {
			return fakeredis.Wait(gate, fakeredis.Run())
		}
		return fakeredis.Run()
	})
	if err := give(t.Context()); err != nil {
		t.Error(err)
	}
	const held = 40 * time.Second // longer than a lease
	for range held / time.Second {
		before := w.srv.Count("EVALSHA") + w.srv.Count("EVAL") + w.srv.Count("HELLO")
		w.sleep(time.Second)
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL") + w.srv.Count("HELLO") - before; n > 20 {
			t.Fatalf("%d scripts and dials in a second", n)
		}
	}
	if ends == "cancelled" {
		cancel()
	}
	if ends != "released" {
		w.sleep(held)
	}
	w.srv.Intercept(nil)
	close(gate)
	wg.Wait()
	again, err := take(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(t.Context()); err != nil {
		t.Error(err)
	}
}
