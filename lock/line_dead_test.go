package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// doomed returns a client, and a function that ends it as a kill would: its server hears no more.
func (w *world) doomed() (c *lock.Client, kill func()) {
	pool := w.pool(conn.Config{})
	c, err := lock.New(pool, lock.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine.Run(c)
	return c, func() {
		_ = pool.Close()
		_ = c.Close()
	}
}

// A process that was killed while it waited has no turn, though somebody listens by a pattern to the channels of all waiters, as Watch does.
func TestKilledWaitersBesideAPattern(t *testing.T) {
	for kind, test := range map[string]struct {
		of   lockOf
		most time.Duration
	}{
		"reentrant": {toLock, 10 * time.Millisecond},
		"write":     {toWrite, 10 * time.Millisecond},
		"fair":      {func(c *lock.Client) goldenLock { return c.Fair("job") }, 2 * time.Second}, // a dead head of a queue is waited for
		"group":     {toValues("a"), 10 * time.Millisecond},
	} {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(50 * time.Microsecond)
				seen := watchAll(t, w.client(lock.Config{}), "*")
				w.sleep(time.Second)
				lease, err := test.of(w.client(lock.Config{})).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					c, kill := w.doomed()
					go func() { _, _ = test.of(c).Lock(t.Context()) }()
					w.sleep(10 * time.Millisecond)
					kill()
				}
				got := test.of.waits(t, t.Context(), w.client(lock.Config{}))
				w.sleep(10 * time.Millisecond)
				start := time.Now()
				mustUnlock(t, lease)
				lease = <-got
				if took := time.Since(start); took > test.most {
					t.Errorf("behind killed waiters the lock is had after %v", took)
				}
				mustUnlock(t, lease)
				_ = seen.close()
				w.srv.Latency(0)
				w.sleep(30 * time.Second)
			})
		})
	}
}

// A waiter of a group whose process has just had the value learns of the end of the next holder's short lease.
func TestShortLeaseBehindTheOwnTurn(t *testing.T) {
	of := toValues("a")
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(50 * time.Microsecond)
		lease, err := of(w.client(lock.Config{})).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		one := of.waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		short := make(chan *lock.Lease, 1)
		go func() {
			l, err := of(other).Lock(t.Context(), lock.For(500*time.Millisecond))
			if err != nil {
				t.Error(err)
			}
			short <- l
		}()
		w.sleep(time.Millisecond)
		two := of.waits(t, t.Context(), c)
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, lease)
		w.sleep(time.Millisecond)
		mustUnlock(t, <-one)
		lease = <-short
		start := time.Now()
		mustUnlock(t, <-two)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the value is had %v after a lease of 500 ms began", took)
		}
		_ = lease.Unlock(t.Context())
		w.srv.Latency(0)
		w.sleep(26 * time.Second)
	})
}

// The places of killed processes leave the line of a busy group, though nobody gives back what they waited for.
func TestPlacesOfKilledProcessesLeaveAGroup(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(50 * time.Microsecond)
		for i := range 3 {
			c, kill := w.doomed()
			ctx, cancel := context.WithCancel(t.Context())
			for j := range 30 {
				value := fmt.Sprint("order", i, ".", j)
				mustHaveValues(t, c, value)
				go func() { _, _ = c.FasterMulti("group", value).Lock(ctx) }()
			}
			w.sleep(time.Second)
			kill()
			cancel()
		}
		if n := w.srv.Do("ZCARD", groupLine); n != any(int64(90)) {
			t.Fatalf("%v places, want 90", n)
		}
		one := w.keepTaking(t, 5*time.Millisecond, 5*time.Millisecond, "x")
		two := w.keepTaking(t, 5*time.Millisecond, 5*time.Millisecond, "x")
		w.sleep(time.Minute)
		if n := w.srv.Do("ZCARD", groupLine).(int64); n > 3 {
			t.Errorf("%d places are left", n)
		}
		one()
		two()
		w.srv.Latency(0)
		w.sleep(26 * time.Second)
	})
}

// keptBack keeps the next answer for a time.
type keptBack struct {
	lock.Server
	w    *world
	keep *atomic.Int64
}

func (h keptBack) Unwrap() lock.Server { return h.Server }

func (h keptBack) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	keep := h.keep.Swap(0)
	v, err := h.Server.Send(ctx, cmd)
	h.w.sleep(time.Duration(keep))
	return v, err
}

// The last waiter of a process is granted and leaves the place, and an Owner's further hold moves the place to the end of the line. The process
// notes the grant of the waiter last, and leaves the place.
func TestPlaceMovedBehindTheLastWaiter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		server := keptBack{pool, w, new(atomic.Int64)}
		c, err := lock.New(server, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, c)
		owner, other := c.NewOwner(), w.client(lock.Config{})
		outer := mustRead(t, c, lock.As(owner))
		ctx, cancel := context.WithCancel(t.Context())
		lockOf(toWrite).waits(t, ctx, other)
		w.sleep(time.Millisecond)
		first := lockOf(toRead).waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		last := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.sleep(time.Millisecond)
		server.keep.Store(int64(5 * time.Millisecond))
		cancel() // the first reader is called, and has the lock
		w.sleep(time.Millisecond)
		further := mustRead(t, c, lock.As(owner))
		if len(first) > 0 {
			t.Fatal("the reader had its answer first")
		}
		for _, l := range []*lock.Lease{<-first, further, outer} {
			mustUnlock(t, l)
		}
		mustUnlock(t, <-last)
		w.sleep(time.Second)
		if line := w.srv.Do("EXISTS", jobLine); line != int64(0) {
			t.Errorf("places are left: %v", w.srv.Do("ZRANGE", jobLine, "0", "-1"))
		}
		w.sleep(latchLife)
		w.free()
	})
}
