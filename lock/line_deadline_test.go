package lock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// Processes with deadlines of ten round trips, who ask again and again, get work done although the server is busy with them: their
// places stay theirs. Soon after the last of them the lock is free for others.
func TestShortDeadlinesOfManyProcesses(t *testing.T) {
	acquires := map[string]struct {
		acquire func(ctx context.Context, c *lock.Client) (*lock.Lease, error)
		least   int64
	}{
		"reentrant": {func(ctx context.Context, c *lock.Client) (*lock.Lease, error) { return c.Reentrant("job").Lock(ctx) }, 45},
		"write": {func(ctx context.Context, c *lock.Client) (*lock.Lease, error) {
			return c.ReadWrite("job").Write().Lock(ctx)
		}, 45},
		"permits": {func(ctx context.Context, c *lock.Client) (*lock.Lease, error) {
			return c.PermitSemaphore("job").Acquire(ctx)
		}, 130},
	}
	for name, of := range acquires {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Do("SET", "job", "3")
				if name != "permits" {
					w.srv.Do("DEL", "job")
				}
				var done, asked, left atomic.Int64
				var wg sync.WaitGroup
				busy := &busyServer{cost: 120 * time.Microsecond}
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if isScriptOf(kinds.Any, cmd, "quit") {
						left.Add(1)
					}
					return busy.intercept(cmd)
				})
				w.srv.Latency(time.Millisecond)
				end := time.Now().Add(400 * time.Millisecond)
				for i := range 100 {
					c := w.client(lock.Config{Lease: 10 * time.Minute})
					wg.Go(func() {
						w.sleep(time.Duration(i) * 74 * time.Microsecond)
						for time.Now().Before(end) {
							asked.Add(1)
							ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
							lease, err := of.acquire(ctx, c)
							cancel()
							if err == nil {
								done.Add(1)
								mustUnlock(t, lease)
							}
						}
					})
				}
				wg.Wait()
				begin := time.Now()
				lease, err := of.acquire(t.Context(), w.client(lock.Config{}))
				if err != nil {
					t.Fatal(err)
				}
				if n, took := done.Load(), time.Since(begin); n < of.least || took > 100*time.Millisecond {
					t.Errorf("%d acquired, want at least %d; the next process after %v", n, of.least, took)
				}
				if n := left.Load(); n > asked.Load()/4 {
					t.Errorf("processes left the line %d times in %d calls", n, asked.Load())
				}
				mustUnlock(t, lease)
				w.srv.Do("DEL", "job")
				w.srv.Intercept(nil)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// busyServer is a server whose scripts each take a while, one after the other.
type busyServer struct {
	cost time.Duration
	mu   sync.Mutex
	free time.Time
}

func (b *busyServer) intercept(cmd fakeredis.Cmd) fakeredis.Action {
	if !strings.HasPrefix(cmd.Name, "EVAL") {
		return fakeredis.Run()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.cost)
	return fakeredis.Delay(time.Until(b.free), fakeredis.Run())
}

// A process whose only waiter ran out of time has its place for as long as its next call needs to come, and not for longer.
func TestPlaceIsKeptForTheNextCall(t *testing.T) {
	for _, comesBack := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.srv.Latency(time.Millisecond)
			holder, c, other := w.client(lock.Config{}), w.client(lock.Config{}), w.client(lock.Config{})
			lease := mustLock(t, holder, "job")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			asyncLock(t, ctx, c)
			w.sleep(10 * time.Millisecond)
			last := asyncLock(t, t.Context(), other)
			<-ctx.Done()
			var again <-chan *lock.Lease
			if comesBack {
				again = asyncLock(t, t.Context(), c)
			}
			begin := time.Now()
			mustUnlock(t, lease)
			if comesBack {
				w.sleep(10 * time.Millisecond)
				if len(again) == 0 {
					t.Fatal("the process that came back has lost its place")
				}
				mustUnlock(t, <-again)
			}
			l := <-last
			if took := time.Since(begin); took > 25*time.Millisecond {
				t.Errorf("the process behind had the lock after %v", took)
			}
			mustUnlock(t, l)
			w.sleep(latchLife)
			w.free()
		})
	}
}
