package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// waiter has c wait for the fair lock job, for ever, and returns what it gets; nothing comes if it fails.
func (w *world) waiter(c *lock.Client, opts ...lock.Option) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go func() {
		lease, err := c.Fair("job").Lock(context.Background(), opts...)
		if err == nil {
			got <- lease
		} else if !errors.Is(err, lock.ErrClosed) {
			w.t.Errorf("Lock() = %v", err)
		}
	}()
	w.sleep(20 * time.Millisecond)
	return got
}

func mustLockFair(t *testing.T, c *lock.Client, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.Fair("job").Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func (w *world) wantLine(want ...string) {
	w.t.Helper()
	if line := w.line(); !slices.Equal(line, want) {
		w.t.Errorf("%v stand in line, want %v", line, want)
	}
}

// Who came first is served first, over several processes, of which some are Redisson's; and at once.
func TestFairOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(100 * time.Microsecond)
		java := w.fairRedisson()
		clients := []*lock.Client{w.client(lock.Config{}), w.client(lock.Config{}), w.client(lock.Config{})}
		holder := mustLockFair(t, clients[0], lock.For(time.Hour))
		var order []int
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				if i%4 < 3 {
					lease := mustLockFair(t, clients[i%4], lock.For(time.Hour))
					order = append(order, i)
					w.sleep(5 * time.Millisecond)
					mustUnlock(t, lease)
					return
				}
				owner := fmt.Sprint("java:", i)
				if java.lock(t.Context(), owner) {
					order = append(order, i)
					w.sleep(5 * time.Millisecond)
					java.unlock(owner)
				}
			})
			w.sleep(10 * time.Millisecond)
		}
		start := time.Now()
		mustUnlock(t, holder)
		wg.Wait()
		if len(order) != 24 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("that took %v, want no waiting but for the holders and the network", took)
		}
		w.free()
	})
}

// However a waiter ends, it leaves the queue, and who is behind it gets the lock.
func TestFairWaysOut(t *testing.T) {
	for name, leave := range map[string]func(w *world, c *lock.Client, owner string, cancel func()){
		"cancelled": func(_ *world, _ *lock.Client, _ string, cancel func()) { cancel() },
		"closed":    func(_ *world, c *lock.Client, _ string, _ func()) { c.Close() },
		"refused": func(w *world, _ *lock.Client, owner string, _ func()) {
			w.onFair("acquire", owner, func(int) fakeredis.Action { return fakeredis.Reply("-NOPERM no such thing\r\n") })
			w.look(owner)
		},
		"cancelled without an answer": func(w *world, _ *lock.Client, owner string, cancel func()) {
			w.onFair("acquire", owner, func(int) fakeredis.Action { return fakeredis.Run().Late(1500 * time.Millisecond) })
			w.look(owner)
			w.sleep(time.Second)
			cancel()
		},
		"closed without an answer": func(w *world, c *lock.Client, owner string, _ func()) {
			w.onFair("acquire", owner, func(int) fakeredis.Action { return fakeredis.Run().Late(500 * time.Millisecond) })
			w.look(owner)
			w.sleep(100 * time.Millisecond)
			c.Close()
		},
		"answer lost, cancelled": func(w *world, _ *lock.Client, owner string, cancel func()) {
			w.onFair("acquire", owner, func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			w.look(owner)
			w.sleep(10 * time.Millisecond)
			cancel()
		},
		"granted, answer lost, cancelled": func(w *world, _ *lock.Client, owner string, cancel func()) {
			w.onFair("acquire", owner, func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			w.srv.Do("DEL", "job")
			w.look(owner)
			cancel()
		},
		"leaving fails at first": func(w *world, _ *lock.Client, owner string, cancel func()) {
			w.onFair("undo", owner, func(n int) fakeredis.Action {
				if n < 4 {
					return fakeredis.Close()
				}
				return fakeredis.Run()
			})
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) { w.leaves(leave) })
		})
	}
}

// onFair has action decide about the n-th of the scripts for an operation of owner.
func (w *world) onFair(operation, owner string, action func(n int) fakeredis.Action) {
	digest, n := kinds.All()["fair"][operation].Digest(), 0
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if len(cmd.Args) < 2 || cmd.Args[1] != digest || !slices.Contains(cmd.Args, owner) {
			return fakeredis.Run()
		}
		n++
		return action(n)
	})
}

func (w *world) leaves(leave func(w *world, c *lock.Client, owner string, cancel func())) {
	c, other := w.client(lock.Config{}), w.client(lock.Config{})
	holder := mustLockFair(w.t, other, lock.For(time.Hour))
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	owner := c.NewOwner()
	ended := make(chan error)
	go func() {
		_, err := c.Fair("job").Lock(ctx, lock.As(owner))
		ended <- err
	}()
	w.sleep(20 * time.Millisecond)
	behind := other.NewOwner()
	next := w.waiter(other, lock.As(behind))
	w.wantLine(owner.String(), behind.String())
	leave(w, c, owner.String(), cancel)
	if err := <-ended; err == nil {
		w.t.Error("Lock() = nil")
	}
	w.srv.Intercept(nil)
	w.sleep(2 * time.Second)
	if w.srv.Do("EXISTS", "job") == int64(1) && w.srv.Do("HEXISTS", "job", behind.String()) == int64(0) {
		w.wantLine(behind.String())
		mustUnlock(w.t, holder)
	}
	start := time.Now()
	mustUnlock(w.t, <-next)
	if took := time.Since(start); took > 100*time.Millisecond {
		w.t.Errorf("who was behind is served after %v", took)
	}
	holder.Unlock(w.t.Context()) // where its lock was taken away
	w.sleep(latchLife)
	w.free()
}

// A waiter whose time is up leaves the queue too.
func TestFairTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		holder := mustLockFair(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.Fair("job").Lock(ctx)
		wantErr(t, "Lock", err, lock.ErrNotAcquired)
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		w.sleep(100 * time.Millisecond)
		w.wantLine()
		mustUnlock(t, holder)
		w.free()
	})
}

// A waiter that ends before it knows whether it stands in line does not.
func TestFairFirstAttempt(t *testing.T) {
	for name, end := range map[string]func(c *lock.Client, cancel func()){
		"cancelled": func(_ *lock.Client, cancel func()) { cancel() },
		"closed":    func(c *lock.Client, _ func()) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				holder := mustLockFair(t, other)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				owner := c.NewOwner()
				w.onFair("acquire", owner.String(), func(int) fakeredis.Action { return fakeredis.Run().Late(500 * time.Millisecond) })
				ended := make(chan error, 1)
				go func() {
					_, err := c.Fair("job").Lock(ctx, lock.As(owner))
					ended <- err
				}()
				w.sleep(100 * time.Millisecond)
				w.wantLine(owner.String())
				end(c, cancel)
				if err := <-ended; err == nil {
					t.Error("Lock() = nil")
				}
				w.sleep(time.Second)
				w.wantLine()
				mustUnlock(t, holder)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// When Close returns, the client's waiters have left the queue: its server may be closed then.
func TestFairClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder := mustLockFair(t, other)
		for range 20 {
			w.waiter(c)
		}
		if n := len(w.line()); n != 20 {
			t.Fatalf("%d stand in line", n)
		}
		if err := errors.Join(c.Close(), w.pools[0].Close()); err != nil {
			t.Error(err)
		}
		w.wantLine()
		mustUnlock(t, holder)
		w.free()
	})
}

// The lock is granted, but the answer is lost: the grant is taken back, and the waiter has not lost its place.
func TestFairGrantTakenBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		holder := mustLockFair(t, other)
		owner := c.NewOwner()
		first := w.waiter(c, lock.As(owner))
		second := w.waiter(other)
		w.onFair("acquire", owner.String(), func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		mustUnlock(t, holder)
		select {
		case lease := <-first:
			mustUnlock(t, lease)
			mustUnlock(t, <-second)
		case lease := <-second:
			t.Error("who came second was served first")
			mustUnlock(t, lease)
			mustUnlock(t, <-first)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A process has died with all its waiters: that costs a second or two, and not one for each of them.
func TestFairDeadHeads(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		holder := mustLockFair(t, c)
		for i := range 50 {
			java.acquire(fmt.Sprint("dead:", i), 5*time.Minute, true)
		}
		next := w.waiter(c)
		w.sleep(10 * time.Second)
		if n := len(w.line()); n != 51 {
			t.Fatalf("%d stand in line while the lock is taken, want them left alone", n)
		}
		mustUnlock(t, holder)
		released := time.Now()
		w.srv.ClearLog()
		w.sleep(990 * time.Millisecond)
		if n := len(w.line()); n != 51 {
			t.Errorf("%d stand in line within a second", n)
		}
		lease := <-next
		if took := time.Since(released); took > 2500*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		if n := w.srv.Count("EVALSHA"); n > 30 {
			t.Errorf("%d scripts ran meanwhile", n)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// The same if the server's clock is set back while the lock is free: the note of when that was seen lasts for longer then.
func TestFairDeadHeadAndAClockSetBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		holder := mustLockFair(t, c)
		java.acquire("dead:1", 5*time.Minute, true)
		next := w.waiter(c)
		mustUnlock(t, holder)
		w.sleep(500 * time.Millisecond)
		w.srv.Jump(-time.Hour)
		back := time.Now()
		lease := <-next
		if took := time.Since(back); took > 2500*time.Millisecond {
			t.Errorf("served %v after the clock was set back", took)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// The same if the lock becomes free by force, or a head that is called leaves: who is behind the dead does not sleep for the lease it has seen.
func TestFairDeadHeadsBehindAForce(t *testing.T) {
	for name, free := range map[string]func(w *world, c *lock.Client, holder *lock.Lease, leave func()){
		"force": func(w *world, c *lock.Client, _ *lock.Lease, leave func()) {
			leave()
			w.sleep(100 * time.Millisecond)
			if ok, err := c.Fair("job").ForceUnlock(w.t.Context()); !ok || err != nil {
				w.t.Errorf("ForceUnlock() = %v, %v", ok, err)
			}
		},
		"leave": func(w *world, _ *lock.Client, holder *lock.Lease, leave func()) {
			w.srv.Latency(10 * time.Millisecond)
			go holder.Unlock(w.t.Context())
			w.sleep(11 * time.Millisecond) // the lock is free, and the message on its way
			leave()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				java, c, other := w.fairRedisson(), w.client(lock.Config{}), w.client(lock.Config{})
				holder := mustLockFair(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan struct{})
				go func() {
					_, _ = other.Fair("job").Lock(ctx)
					close(gone)
				}()
				w.sleep(20 * time.Millisecond)
				java.acquire("dead:1", 5*time.Minute, true)
				next := w.waiter(c)
				w.sleep(time.Second)
				free(w, c, holder, func() { cancel(); <-gone })
				freed := time.Now()
				lease := <-next
				if took := time.Since(freed); took > 3*time.Second {
					t.Errorf("served after %v", took)
				}
				mustUnlock(t, lease)
				w.free()
			})
		})
	}
}

// The same when nobody waits but one who tries now and then.
func TestFairDeadHeadAndTryLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		holder := mustLockFair(t, c)
		java.acquire("dead:1", 5*time.Minute, true)
		mustUnlock(t, holder)
		for range 2 {
			_, err := c.Fair("job").TryLock(t.Context())
			wantErr(t, "TryLock behind another", err, lock.ErrNotAcquired)
			w.wantLine("dead:1")
			w.sleep(900 * time.Millisecond)
		}
		lease, err := c.Fair("job").TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock after 1.8s = %v", err)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// A waiter of Redisson's listens some time after it has stood in line, and is not taken for dead before.
func TestFairLateSubscriber(t *testing.T) {
	for _, late := range []time.Duration{55 * time.Millisecond, 900 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			java, c := w.fairRedisson(), w.client(lock.Config{})
			java.late = late
			holder := mustLockFair(t, c)
			first := make(chan bool, 1)
			go func() { first <- java.lock(t.Context(), "java:1") }()
			w.sleep(time.Millisecond)
			owner := c.NewOwner()
			second := w.waiter(c, lock.As(owner))
			mustUnlock(t, holder)
			w.look(owner.String())
			select {
			case <-first:
			case <-second:
				t.Fatalf("who subscribes %v late has lost its place", late)
			}
			java.unlock("java:1")
			mustUnlock(t, <-second)
			w.free()
		})
	}
}

// A head that is connected but does not come keeps the others waiting for a quarter of a minute, and they do not spin.
func TestFairStuckHead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		java, c := w.fairRedisson(), w.client(lock.Config{})
		stream, err := java.pool.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if err := stream.Write(t.Context(), resp.Cmd("SUBSCRIBE", jobChannel+":stuck:1")); err != nil {
			t.Fatal(err)
		}
		holder := mustLockFair(t, c)
		java.acquire("stuck:1", 5*time.Minute, true)
		next := w.waiter(c)
		w.sleep(5 * time.Second)
		w.srv.ClearLog()
		released := time.Now()
		mustUnlock(t, holder)
		lease := <-next
		if took := time.Since(released); took < 15*time.Second || took > 26*time.Second {
			t.Errorf("served after %v, want 15s and what it takes to notice", took)
		}
		if n := w.srv.Count("EVALSHA"); n > 60 {
			t.Errorf("%d scripts ran meanwhile", n)
		}
		called := 0
		for _, m := range w.srv.Messages() {
			if m.Channel == jobChannel+":stuck:1" {
				called++
			}
		}
		if called < 5 {
			t.Errorf("the head was called %d times", called)
		}
		mustUnlock(t, lease)
		stream.Close()
		w.free()
	})
}

// Waiters put their deadlines off for as long as they wait.
func TestFairLongWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{FairWait: 30 * time.Second})
		holder := mustLockFair(t, c)
		owners := []string{}
		var waiters []<-chan *lock.Lease
		for range 3 {
			owner := c.NewOwner()
			owners = append(owners, owner.String())
			waiters = append(waiters, w.waiter(w.clients[0], lock.As(owner)))
		}
		for range 60 {
			w.sleep(time.Minute)
			w.wantLine(owners...)
			for _, owner := range owners {
				if left := w.deadline(owner); left < 20*time.Second {
					t.Fatalf("%s counts as alive for another %v", owner, left)
				}
			}
			if left := w.ttl(jobQueue); left < 24*time.Hour || left > 24*time.Hour+10*time.Minute {
				t.Fatalf("the queue lasts for another %v", left)
			}
		}
		mustUnlock(t, holder)
		for _, got := range waiters {
			mustUnlock(t, <-got)
		}
		w.free()
	})
}

// A waiter that comes when its time is up, or lost, has its place still.
func TestFairKeepsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		holder := mustLockFair(t, c)
		first, second := c.NewOwner(), c.NewOwner()
		got := w.waiter(c, lock.As(first))
		next := w.waiter(c, lock.As(second))
		for _, command := range [][]string{{"ZADD", jobTimeouts, "1", first.String()}, {"ZREM", jobTimeouts, first.String()}} {
			w.srv.Do(command...)
			w.look(first.String())
			w.sleep(10 * time.Millisecond)
			w.wantLine(first.String(), second.String())
			if left := w.deadline(first.String()); left < time.Minute {
				t.Errorf("it counts as alive for %v after it has come", left)
			}
		}
		mustUnlock(t, holder)
		mustUnlock(t, <-got)
		mustUnlock(t, <-next)
		w.free()
	})
}

// The deadline of who comes lies behind that of the last one by as long as it may wait.
func TestFairWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{FairWait: time.Minute})
		holder := mustLockFair(t, c)
		first, second, third := c.NewOwner(), c.NewOwner(), c.NewOwner()
		w.waiter(c, lock.As(first))
		w.wantDeadline(first, 90*time.Second)
		for _, next := range []struct {
			behind, owner lock.Owner
			waits, counts time.Duration
		}{
			{first, second, 20 * time.Second, 20 * time.Second},
			{second, third, time.Hour, time.Minute}, // no longer than FairWait
		} {
			ctx, cancel := context.WithTimeout(t.Context(), next.waits)
			defer cancel()
			go c.Fair("job").Lock(ctx, lock.As(next.owner))
			w.sleep(20 * time.Millisecond)
			w.wantDeadline(next.owner, w.deadline(next.behind.String())+next.counts)
		}
		if left := w.ttl(jobTimeouts); left != w.ttl(jobQueue) || left < 24*time.Hour+2*time.Minute || left > 24*time.Hour+4*time.Minute {
			t.Errorf("the deadlines last for %v, the queue for %v", left, w.ttl(jobQueue))
		}
		mustUnlock(t, holder)
		c.Close()
	})
	for _, bad := range []time.Duration{-1, time.Second} {
		_, err := lock.New(nil, lock.Config{FairWait: bad})
		wantErr(t, "New with a FairWait of "+bad.String(), err, lock.ErrInvalid)
	}
}

func (w *world) wantDeadline(owner lock.Owner, want time.Duration) {
	w.t.Helper()
	if got := w.deadline(owner.String()); got < want-50*time.Millisecond || got > want+50*time.Millisecond {
		w.t.Errorf("%v counts as alive for %v, want %v", owner, got, want)
	}
}
