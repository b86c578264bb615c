package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// A series of hold of one process is one acquire and one release for the server, for all who take part in it in their order.
func TestRelay(t *testing.T) {
	for name, of := range map[string]func(c *lock.Client) *lock.Handle{
		"reentrant":    func(c *lock.Client) *lock.Handle { return &c.Reentrant("job").Handle },
		"nonreentrant": func(c *lock.Client) *lock.Handle { return &c.NonReentrant("job").Handle },
		"write":        func(c *lock.Client) *lock.Handle { return &c.ReadWrite("job").Write().Handle },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(long)
				first, err := of(c).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				owners := map[string]bool{first.Owner(): true}
				line(t, w, 8, first, func() (*lock.Lease, error) {
					l, err := of(c).Lock(t.Context())
					if err == nil {
						owners[l.Owner()] = true
						w.wantHolds("job", "1", l)
					}
					return l, err
				})
				if err := first.Err(); !errors.Is(err, lock.ErrReleased) {
					t.Errorf("Err() of the first = %v", err)
				}
				mustUnlock(t, first)
				if n, said := w.srv.Count("EVALSHA"), len(w.srv.Messages()); n != 1 || said != 1 || len(owners) != 1 {
					t.Errorf("%d scripts, %d messages and %d owners for eight changes of hands, want 1 each", n, said, len(owners))
				}
				w.free()
			})
		})
	}
}

// The lease of who gets the lock is the one that the server counts: renewed as ever, and over when that is.
func TestRelayedLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		first := mustLock(t, c, "job")
		began := time.Now()
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job") }()
		w.sleep(9 * time.Second)
		mustUnlock(t, first)
		next := <-got
		if left := next.ValidUntil().Sub(began); left > w.ttl("job")+time.Since(began) || left < 29*time.Second {
			t.Errorf("valid for %v from when the server was asked, which keeps the lock for %v more", left, w.ttl("job"))
		}
		w.sleep(time.Minute)
		w.wantHolds("job", "1", next)
		w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Close() })
		w.sleep(time.Minute)
		lostBecause(t, next.Err(), lock.Unreachable)
		w.srv.Intercept(nil)
		w.sleep(time.Second)
		wantErr(t, "Unlock()", next.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}

// Whatever makes it doubtful that the server still has the hold has the lock given back to the server.
func TestNoRelay(t *testing.T) {
	for name, test := range map[string]struct {
		cfg         lock.Config
		first, next []lock.Option
		before      time.Duration // the harm; 0 is a second
		after       time.Duration
		harm        func(w *world)
		err         error
	}{
		"the next one asks for a lease": {next: []lock.Option{lock.For(time.Minute)}},
		"the first one has a lease":     {first: []lock.Option{lock.For(time.Minute)}},
		"a renewal has failed": {after: 5 * time.Second, harm: func(w *world) {
			w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Reply("-ERR no\r\n") })
		}},
		"a renewal is under way": {before: 4900 * time.Millisecond, after: 150 * time.Millisecond, harm: func(w *world) {
			w.srv.Do("DEL", "job")
			w.onScript("renew", func(int) fakeredis.Action { return fakeredis.Run().Late(100 * time.Millisecond) })
		}, err: lock.ErrNotHeld},
		"the loss is known":  {after: 5 * time.Second, harm: func(w *world) { w.srv.Do("DEL", "job") }, err: lock.ErrNotHeld},
		"others want a turn": {cfg: lock.Config{HandOvers: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				cfg := test.cfg
				cfg.Lease, cfg.RenewEvery, cfg.HandOverFor = time.Hour, 5*time.Second, time.Hour
				c := w.client(cfg)
				first := mustLock(t, c, "job", test.first...)
				got := make(chan *lock.Lease)
				go func() { got <- mustLock(t, c, "job", test.next...) }()
				w.sleep(max(test.before, time.Second))
				if test.harm != nil {
					test.harm(w)
				}
				w.sleep(test.after)
				w.srv.ClearLog()
				if err := first.Unlock(t.Context()); !errors.Is(err, test.err) {
					t.Errorf("Unlock() = %v, want %v", err, test.err)
				}
				next := <-got
				w.srv.Intercept(nil)
				if next.Owner() == first.Owner() {
					t.Error("both have one owner")
				}
				w.wantHolds("job", "1", next)
				mustUnlock(t, next)
				w.sleep(30 * time.Second)
				w.free()
			})
		})
	}
}

// A write lock is passed on without a word to the server, and may then be downgraded like any other. A writer that has announced
// itself to readers asks the server, which ends the announcement.
func TestRelayedWriteLock(t *testing.T) {
	for name, prefer := range map[string]bool{"in line": false, "announced": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{HandOverFor: time.Hour, PreferWriters: prefer})
				first, got := mustWrite(t, c), make(chan *lock.Lease)
				go func() { got <- mustWrite(t, c) }()
				w.sleep(time.Second)
				mustUnlock(t, first)
				second := <-got
				if relayed := second.Owner() == first.Owner(); relayed == prefer {
					t.Errorf("relayed: %v", relayed)
				}
				read, err := second.Downgrade(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.sleep(20 * time.Second)
				if err := errors.Join(read.Err(), second.Unlock(t.Context())); err != nil {
					t.Error(err)
				}
				mustUnlock(t, read)
				w.free()
			})
		})
	}
}

// A lock that is freed by force during a series is lost for who has it then. Those before have released it, and those behind take
// it anew.
func TestRelayForced(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		first := mustLock(t, c, "job")
		got := make(chan *lock.Lease)
		for range 2 {
			go func() { got <- mustLock(t, c, "job") }()
			w.sleep(time.Second)
		}
		mustUnlock(t, first)
		second := <-got
		if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.sleep(11 * time.Second) // a renewal
		lostBecause(t, second.Err(), lock.Forced)
		wantErr(t, "Unlock()", second.Unlock(t.Context()), lock.ErrNotHeld)
		third := <-got
		w.wantHolds("job", "1", third)
		mustUnlock(t, first)
		w.wantHolds("job", "1", third)
		mustUnlock(t, third)
		w.free()
	})
}

// Callers come and go, and clients are closed, at the very moment at which the lock is passed on. No two have it, and nothing is left.
func TestRelayStorm(t *testing.T) {
	for range 20 {
		inVirtualTime(t, func(t *testing.T, w *world) {
			clients := []*lock.Client{w.client(lock.Config{}), w.client(lock.Config{HandOvers: 3}), w.client(long)}
			var holders, turns atomic.Int64
			var wg sync.WaitGroup
			for i := range 24 {
				c := clients[i%len(clients)]
				wg.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
						lease, err := c.Reentrant("job").Lock(ctx)
						cancel()
						if err != nil {
							continue
						}
						if n := holders.Add(1); n != 1 {
							t.Errorf("%d have the lock", n)
						}
						turns.Add(1)
						w.sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
						holders.Add(-1)
						if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, lock.ErrNotHeld) {
							t.Errorf("Unlock() = %v", err)
						}
					}
				})
			}
			w.sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			if err := clients[1].Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
			wg.Wait()
			if turns.Load() == 0 {
				t.Error("nobody had a turn")
			}
			w.sleep(latchLife) // of acquires that were cancelled on their way
			w.free()
		})
	}
}
