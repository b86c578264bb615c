package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// latency is the way of every byte between the processes and the servers.
const latency = time.Millisecond

func (f fleet) slow() {
	for _, w := range f {
		w.srv.Latency(latency)
	}
}

// scripts is how many scripts all servers have run.
func (f fleet) scripts() (n int) {
	for _, w := range f {
		n += w.srv.Count("EVALSHA")
	}
	return n
}

// waits starts a Lock, whose lease comes over the channel, and lets a second pass.
func waits(t *testing.T, ctx context.Context, r *lock.Redlock) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go func() {
		lease, err := r.Lock(ctx)
		if err != nil && ctx.Err() == nil {
			t.Errorf("Lock() = %v", err)
		}
		got <- lease
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	return got
}

// wantSoon takes the lease of a waiter, who has at most some round trips for it: the message, a pause, and the votes.
func wantSoon(t *testing.T, got <-chan *lock.Lease, what string) *lock.Lease {
	t.Helper()
	start := time.Now()
	lease := <-got
	if took := time.Since(start); took > 20*latency {
		t.Errorf("%s: the waiter has the lock after %v", what, took)
	}
	return lease
}

// looks is the most scripts that a waiter runs in some seconds while the lock is taken: it asks each server who has the lock.
func (f fleet) looks(seconds int) int { return len(f) * seconds }

// A waiter asks for the lock no more while the lock is taken, and has it some round trips after its release, also with a server down.
func TestRedlockHandOver(t *testing.T) {
	down["none"] = func(*fakeredis.Server, bool) {}
	defer delete(down, "none")
	for how, set := range down {
		t.Run(how, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				f.slow()
				mine := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				lease := lockRed(t, mine)
				set(f[1].srv, true)
				got := waits(t, t.Context(), other)
				before := f.scripts()
				time.Sleep(5 * time.Second)
				if n := f.scripts() - before; n > f.looks(5) {
					t.Errorf("%d scripts ran while the lock was taken", n)
				}
				mustUnlock(t, lease)
				lease = wantSoon(t, got, how)
				set(f[1].srv, false)
				mustUnlock(t, lease)
				time.Sleep(40 * time.Second)
				f.free()
			})
		})
	}
}

// A release at any step of a waiter's first attempts and of its subscription wakes it.
func TestRedlockReleasedAtEachStep(t *testing.T) {
	for step := range 80 {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			for i, w := range f {
				w.srv.Latency(latency * time.Duration(1+2*i))
			}
			p := f.process(lock.Config{})
			r := p.redlock(t, lock.RedlockConfig{Pause: time.Hour}, false)
			mustUnlock(t, lockRed(t, r))
			lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
			down["refuses"](f[2].srv, true) // the messages of both others are needed
			for _, c := range p {
				c.OnlyWoken()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got := make(chan error, 1)
			go func() {
				mine, err := r.Lock(ctx)
				if err == nil {
					err = mine.Unlock(ctx)
				}
				got <- err
			}()
			time.Sleep(time.Duration(step) * latency / 2)
			mustUnlock(t, lease)
			if err := <-got; err != nil {
				t.Errorf("released after %d half milliseconds: Lock() = %v", step, err)
			}
			down["refuses"](f[2].srv, false)
			time.Sleep(40 * time.Second)
			f.free()
		})
	}
}

// Waiters do not wake each other by giving back what was of no use: the holder has a majority, and one server is free.
func TestRedlockUselessGrants(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		f[2].srv.Do("DEL", "job")
		first := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		second := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		one, two := waits(t, t.Context(), first), waits(t, t.Context(), second)
		before := f.scripts()
		time.Sleep(5 * time.Second)
		if n := f.scripts() - before; n > 2*f.looks(5) {
			t.Errorf("%d scripts ran in five seconds while a majority was taken", n)
		}
		mustUnlock(t, lease)
		for range 2 {
			select {
			case lease = <-one:
			case lease = <-two:
			}
			mustUnlock(t, lease)
		}
		f.free()
	})
}

// Without a message the end of the leases of a dead holder starts the next ballot.
func TestRedlockHolderDies(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false), lock.For(7*time.Second))
		start := time.Now()
		got := waits(t, t.Context(), f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		before := f.scripts()
		lease := <-got
		if took, n := time.Since(start), f.scripts()-before; took > 7*time.Second+20*latency || n > 3+f.looks(7) {
			t.Errorf("taken after %v, by %d scripts", took, n)
		}
		mustUnlock(t, lease)
		f.free()
	})
}

// While the anchor refuses or ends the subscription, waiters ask again and again; as soon as it is back, they hear all messages.
func TestRedlockWithoutSubscription(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		mine := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		var refuse atomic.Bool
		refuse.Store(true)
		f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if refuse.Load() && cmd.Name == "SUBSCRIBE" {
				return fakeredis.Reply("-NOPERM no channels\r\n")
			}
			return fakeredis.Run()
		})
		lease := lockRed(t, mine)
		got := waits(t, t.Context(), other)
		mustUnlock(t, lease)
		start := time.Now()
		lease = <-got
		if took := time.Since(start); took > time.Second {
			t.Errorf("refused: taken after %v", took)
		}
		refuse.Store(false)
		mustUnlock(t, lease)
		lease = lockRed(t, mine)
		got = waits(t, t.Context(), other)
		time.Sleep(time.Minute) // the Subscriber tries again
		if f[0].srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 }) == 0 {
			t.Error("nobody listens")
		}
		mustUnlock(t, lease)
		start = time.Now()
		lease = <-got
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("lost: taken after %v", took)
		}
		mustUnlock(t, lease)
		f.free()
	})
}

// Callers who leave, and clients that are closed, leave no subscription behind.
func TestRedlockLeavesNoSubscription(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		ctx, cancel := context.WithCancel(t.Context())
		got := waits(t, ctx, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		if n := f[0].listeners("job"); n != 1 {
			t.Errorf("%d listen while one waits", n)
		}
		cancel()
		<-got
		time.Sleep(time.Second)
		if n := f[0].listeners("job"); n != 0 {
			t.Errorf("%d listen when the waiter has left", n)
		}
		p := f.process(lock.Config{})
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		r := p.redlock(t, lock.RedlockConfig{}, false)
		got = waits(t, ctx, r)
		cancel()
		<-got
		for _, c := range p {
			if err := c.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
		time.Sleep(5 * latency)
		if n := f[0].listeners("job"); n != 0 {
			t.Errorf("%d listen when the clients are closed", n)
		}
		mustUnlock(t, lease)
		f.free()
	})
}

// listeners is how many listen to the channel of a lock.
func (w *world) listeners(name string) int64 {
	counts, _ := w.srv.Do("PUBSUB", "NUMSUB", "redisson_lock__channel:{"+name+"}").([]any)
	return counts[1].(int64)
}

// Waiters for the lock of a single server stand in its line; a Redlock has its turns among them all the same.
func TestRedlockBesideALine(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			c := f[0].client(lock.Config{HandOvers: -1})
			wg.Go(func() {
				for ctx.Err() == nil {
					if lease, err := c.Reentrant("job").Lock(ctx); err == nil {
						f[0].sleep(5 * time.Millisecond)
						mustUnlock(t, lease)
					}
				}
			})
		}
		single, err := f[1].client(lock.Config{}).Reentrant("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var longest time.Duration
		for range 20 {
			start := time.Now()
			lease := lockRed(t, r)
			longest = max(longest, time.Since(start))
			mustUnlock(t, lease)
		}
		if longest > time.Second {
			t.Errorf("waited for %v", longest)
		}
		cancel()
		wg.Wait()
		mustUnlock(t, single)
		time.Sleep(7 * time.Second)
		f.free()
	})
}

// While too few servers have a vote after their start, waiters ask again after the pause without messages: the message about a
// useless grant of another waiter is no reason for a ballot.
func TestRedlockWaitersDuringTheQuarantine(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, w := range f {
			w.srv.Restart()
		}
		var all []<-chan *lock.Lease
		for range 3 {
			all = append(all, waits(t, ctx, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)))
		}
		before := f.scripts()
		time.Sleep(time.Second)
		cancel()
		// An acquire and a release for each server and ballot, and 50 ms at least from ballot to ballot.
		if n, most := f.scripts()-before, len(all)*20*2*len(f); n > most {
			t.Errorf("%d scripts in a second, want %d at most", n, most)
		}
		for _, got := range all {
			<-got
		}
	})
}

func TestRedlockClosedClients(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		lease := lockRed(t, r)
		synctest.Wait()
		p[2].Close()
		if err := lease.Err(); err != nil {
			t.Errorf("Err() with one client of three closed = %v", err)
		}
		p[1].Close()
		lostBecause(t, lease.Err(), lock.ClientClosed)
		mustUnlock(t, lease)
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		wantErr(t, "TryLock()", err, lock.ErrClosed)
		synctest.Wait() // for the vote of the client that is left
		p[0].Close()
		_, err = r.Lock(t.Context())
		wantErr(t, "Lock()", err, lock.ErrClosed)
		f.free()
	})
}

// A vote that is under way when its client is closed is taken back. The latch that keeps it from counting later stays for as long as
// it may be on its way.
func TestRedlockClosedDuringTheVote(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		synctest.Wait()
		p[2].Close()
		p[1].Close()
		f[0].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(100*time.Millisecond, fakeredis.Run()) })
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		synctest.Wait()
		if err := p[0].Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers after Close", n)
		}
		time.Sleep(5 * time.Second)
		f.free()
	})
}

// refusedVote has a Redlock on three servers ask in vain: another process has the lock on two of them. The vote of the third is on its
// way back then.
func (f fleet) refusedVote(t *testing.T, p process) {
	t.Helper()
	other := f.process(lock.Config{})
	for _, c := range other[:2] {
		mustLock(t, c, "job")
	}
	_, err := p.redlock(t, lock.RedlockConfig{}, false).TryLock(t.Context())
	wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
	synctest.Wait()
}

// Close has the vote of a ballot that was lost taken back within its time, or counts it, whatever becomes of the release.
func TestRedlockCloseDuringTheRelease(t *testing.T) {
	second := (*lock.Client).Close
	unlimited := func(c *lock.Client) error { return c.CloseContext(context.Background()) }
	for name, test := range map[string]struct {
		release func(w *world, n int) fakeredis.Action
		close   func(c *lock.Client) error
		want    lock.CloseError
		most    time.Duration
	}{
		"answered": {
			func(*world, int) fakeredis.Action { return fakeredis.Delay(400*time.Millisecond, fakeredis.Run()) },
			second, lock.CloseError{}, 400 * time.Millisecond,
		},
		"answered late": {
			func(_ *world, n int) fakeredis.Action {
				return first(fakeredis.Delay(700*time.Millisecond, fakeredis.Run()))(n)
			},
			second, lock.CloseError{}, 700 * time.Millisecond,
		},
		"the connection is lost": {
			func(w *world, n int) fakeredis.Action {
				if n == 1 {
					w.srv.Refuse(true)
					time.AfterFunc(2*time.Second, func() { w.srv.Refuse(false) })
					return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
				}
				return fakeredis.Run()
			},
			unlimited, lock.CloseError{}, 3 * time.Second,
		},
		"the connection is lost for good": {
			func(w *world, _ int) fakeredis.Action {
				w.srv.Refuse(true)
				return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
			},
			second, lock.CloseError{Releases: 1}, time.Second,
		},
		"never answered": {
			func(*world, int) fakeredis.Action { return fakeredis.Swallow() },
			second, lock.CloseError{Releases: 1}, time.Second,
		},
		"no time": {
			func(*world, int) fakeredis.Action { return fakeredis.Swallow() },
			func(c *lock.Client) error {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				return c.CloseContext(ctx)
			},
			lock.CloseError{Releases: 1}, 0,
		},
		"much time": {
			func(_ *world, n int) fakeredis.Action { return first(fakeredis.Swallow())(n) },
			unlimited,
			lock.CloseError{}, 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				p := f.process(lock.Config{})
				third := f[2]
				third.onScript("single", func(n int) fakeredis.Action { return test.release(third, n) })
				f.refusedVote(t, p)
				start := time.Now()
				err := test.close(p[2])
				took := time.Since(start)
				given, ok := errors.AsType[*lock.CloseError](err)
				if want := test.want != (lock.CloseError{}); ok != want || ok && *given != test.want || !ok && err != nil {
					t.Errorf("Close() = %v, want %+v", err, test.want)
				}
				if took > test.most {
					t.Errorf("Close() took %v, want no more than %v", took, test.most)
				}
				if taken := f.holders("job")[2] != nil; taken != (test.want.Releases > 0) {
					t.Errorf("the third server has the lock: %v, after Close() = %v", taken, err)
				}
				third.clients = nil // whose Close has failed
			})
		})
	}
}

// The client of a vote that was granted is closed while the ballot waits for others. The vote is taken back and does not count.
func TestRedlockCloseBeforeTheDecision(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{NodeTimeout: 10 * time.Second}, false)
		mustUnlock(t, lockRed(t, r))
		synctest.Wait()
		for _, w := range f[1:] {
			w.onScript("acquire", first(fakeredis.Delay(500*time.Millisecond, fakeredis.Run())))
		}
		asked := make(chan *lock.Lease)
		go func() {
			lease, err := r.TryLock(t.Context())
			if err != nil {
				t.Errorf("TryLock() = %v", err)
			}
			asked <- lease
		}()
		time.Sleep(100 * time.Millisecond)
		if f.holders("job")[0] == nil {
			t.Fatal("the first server has not granted")
		}
		if err := p[0].Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if f.holders("job")[0] != nil {
			t.Error("the first server has the lock after Close")
		}
		if lease := <-asked; lease != nil {
			if n := len(lease.Members()); n != 2 {
				t.Errorf("%d servers have granted, want 2", n)
			}
			mustUnlock(t, lease)
		}
		f.free()
	})
}

// An Unlock that is under way when Close is called has its answer, which Close waits for.
func TestRedlockCloseDuringUnlock(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		lease := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		for _, w := range f {
			w.onScript("single", first(fakeredis.Delay(300*time.Millisecond, fakeredis.Run())))
		}
		released := make(chan error)
		go func() { released <- lease.Unlock(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		for _, c := range p {
			if err := c.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers after Close", n)
		}
		if err := <-released; err != nil {
			t.Errorf("Unlock() = %v", err)
		}
		f.free()
	})
}

// The release of a useless grant holds up no caller: the context of a Lock ends it also while the server of the grant hangs.
func TestRedlockUselessGrantOfAHangingServer(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got := waits(t, ctx, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "EVALSHA" && cmd.Args[4] == jobChannel { // a release
				return fakeredis.Swallow()
			}
			return fakeredis.Run()
		})
		f[0].srv.Restart() // and has no vote
		start := time.Now()
		if <-got != nil {
			t.Error("the waiter has a lease")
		}
		if took := time.Since(start); took > 600*time.Millisecond {
			t.Errorf("Lock returned %v after the begin of the restart, want half a second", took)
		}
		f[0].srv.Intercept(nil)
		mustUnlock(t, lease)
		time.Sleep(40 * time.Second)
		f.free()
	})
}
