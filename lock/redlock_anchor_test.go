package lock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// commands is how many commands the clients have sent to all servers.
func (f fleet) commands() (n int) {
	for _, w := range f {
		n += w.srv.Count("EVALSHA") + w.srv.Count("INFO") + w.srv.Count("SUBSCRIBE") + w.srv.Count("UNSUBSCRIBE")
	}
	return n
}

// Processes that want a Redlock all the time have it in turn, and each release wakes the next one alone.
func TestRedlockInLine(t *testing.T) {
	const processes, callers, turns = 6, 2, 10
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range processes {
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			for range callers {
				wg.Go(func() {
					for range turns {
						lease := lockRed(t, r)
						mu.Lock()
						order = append(order, i)
						mu.Unlock()
						f[0].sleep(5 * time.Millisecond)
						mustUnlock(t, lease)
					}
				})
			}
		}
		start, before := time.Now(), f.commands()
		wg.Wait()
		if most := len(order) * 15 * int(latency); int(time.Since(start)) > most {
			t.Errorf("%d turns of 5 ms took %v", len(order), time.Since(start))
		}
		// An INFO and an acquire for each server, and once more for the place at the anchor; a release for each server.
		if n, most := f.commands()-before, 14*len(order); n > most {
			t.Errorf("%d commands for %d turns, want %d at most", n, len(order), most)
		}
		settled := order[2*processes : len(order)-2*processes]
		for round := range slices.Chunk(settled, processes) {
			slices.Sort(round)
			if len(round) == processes && len(slices.Compact(round)) < processes-1 {
				t.Errorf("the processes' turns: %v", settled)
				break
			}
		}
		time.Sleep(20 * time.Second)
		f.free()
	})
}

// A waiter who stands at a server that fails has the lock some seconds after its release, and the next one at once.
func TestRedlockAnchorFails(t *testing.T) {
	for how, set := range down {
		t.Run(how, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				f.slow()
				mine := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				lease := lockRed(t, mine)
				got := waits(t, t.Context(), other)
				set(f[0].srv, true)
				mustUnlock(t, lease)
				start := time.Now()
				lease = <-got
				most := 4 * time.Second
				if how == "refuses" { // a closed connection, and then a failed attempt, end the wait in its line
					most = time.Second / 2
				}
				if took := time.Since(start); took > most {
					t.Errorf("taken after %v", took)
				}
				got = waits(t, t.Context(), mine)
				mustUnlock(t, lease)
				lease = wantSoon(t, got, "at the next server")
				set(f[0].srv, false)
				mustUnlock(t, lease)
				time.Sleep(40 * time.Second)
				f[0].srv.KillConns(nil) // which an unreachable client cannot close
				f.free()
			})
		})
	}
}

// A waiter has the lock though somebody else keeps it on the server in whose line the waiter stands.
func TestRedlockAnchorKept(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			f.slow()
			lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain))
			got := waits(t, t.Context(), f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain))
			synctest.Wait()
			f[0].srv.Do("DEL", "job")
			var kept *lock.Lease
			if c := f[0].client(lock.Config{}); plain {
				kept, _ = c.Plain("job").Lock(t.Context())
			} else {
				kept = mustLock(t, c, "job")
			}
			mustUnlock(t, lease)
			start := time.Now()
			lease = <-got
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("taken after %v", took)
			}
			if n := len(lease.Members()); n != 2 {
				t.Errorf("the lease has %d members", n)
			}
			mustUnlock(t, lease)
			mustUnlock(t, kept)
			time.Sleep(20 * time.Second)
			f.free()
		})
	}
}

// A lease that is won on the other servers is not lost when the waiter hears of the anchor's lock at the same time.
func TestRedlockWonWhileWoken(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		got := waits(t, ctx, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		f[0].srv.Do("DEL", "job")
		kept := mustLock(t, f[0].client(lock.Config{}), "job")
		var messages sync.WaitGroup
		messages.Go(func() {
			for range 500 {
				time.Sleep(latency / 10)
				f[0].srv.Do("PUBLISH", jobChannel, "0")
			}
		})
		time.Sleep(20 * latency)
		mustUnlock(t, lease)
		if lease = wantSoon(t, got, "beside messages"); lease == nil {
			t.Fatal("the waiter has no lease")
		}
		messages.Wait()
		mustUnlock(t, lease)
		mustUnlock(t, kept)
		time.Sleep(20 * time.Second)
		f.free()
	})
}

// A waiting call counts once in each client that waits.
func TestRedlockStatsOfWaiters(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		p := f.process(lock.Config{})
		got := waits(t, t.Context(), p.redlock(t, lock.RedlockConfig{}, false))
		if n := p[0].Stats().Waiting; n != 1 {
			t.Errorf("%d wait, want one", n)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		time.Sleep(20 * time.Second)
		f.free()
	})
}

// A caller whose context never ends has the lock as soon as others.
func TestRedlockInLineWithoutADeadline(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		got := waits(t, context.Background(), f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		mustUnlock(t, lease)
		select {
		case lease = <-got:
			mustUnlock(t, lease)
		case <-time.After(time.Minute):
			t.Error("the waiter has no lease after a minute")
		}
		time.Sleep(20 * time.Second)
		f.free()
	})
}

// The time in line does not count as time without an answer: who has waited for longer than a lease tolerates a failure of some seconds.
func TestRedlockFailureBehindALongWait(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		f.slow()
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		got := waits(t, t.Context(), f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		time.Sleep(time.Minute)
		for _, w := range f[1:] {
			down["refuses"](w.srv, true)
		}
		f[0].srv.Do("DEL", "job")
		f[0].srv.Do("PUBLISH", jobChannel, "0")
		time.Sleep(5 * time.Second)
		for _, w := range f[1:] {
			down["refuses"](w.srv, false)
			w.srv.Do("DEL", "job")
		}
		next := <-got
		if next == nil {
			t.Fatal("the waiter has gone")
		}
		mustUnlock(t, next)
		_ = lease.Unlock(t.Context())
		time.Sleep(40 * time.Second)
		f.free()
	})
}

// With a server down and another owner on a second one, Lock waits for the second, for longer than a lease: a majority of the servers answers.
func TestRedlockTakenBesideAFailure(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for failed := range 3 {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				f.slow()
				r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain)
				down["refuses"](f[failed].srv, true)
				c := f[(failed+1)%3].client(lock.Config{})
				h := c.Reentrant("job").Handle
				if plain {
					h = c.Plain("job").Handle
				}
				kept, err := h.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				before := f.commands()
				got := waits(t, t.Context(), r)
				time.Sleep(2 * time.Minute)
				if n := f.commands() - before; n > 30*120 {
					t.Errorf("%d commands in two minutes", n)
				}
				mustUnlock(t, kept)
				lease := <-got
				if lease == nil {
					t.Fatal("the waiter has gone")
				}
				mustUnlock(t, lease)
				down["refuses"](f[failed].srv, false)
				time.Sleep(40 * time.Second)
				f.free()
			})
		}
	}
}

// A key of another type on one server is no reason to end a wait for a lock that a majority can give.
func TestRedlockWaitsBesideAnotherFormat(t *testing.T) {
	for _, way := range []time.Duration{latency / 10, 3 * latency} { // to the server with the key
		inFleet(t, 3, func(t *testing.T, f fleet) {
			f.slow()
			f[2].srv.Latency(way)
			f[2].srv.Do("SET", "job", "x")
			holder := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			lease := lockRed(t, holder)
			got := waits(t, t.Context(), other)
			mustUnlock(t, lease)
			if lease = <-got; lease != nil {
				mustUnlock(t, lease)
			}
			f[2].srv.Do("DEL", "job")
			time.Sleep(40 * time.Second)
			f.free()
		})
	}
}

// Attempts at servers that refuse at once are a Pause apart.
func TestRedlockPause(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			f.slow()
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{Pause: time.Second}, plain)
			mustUnlock(t, lockRed(t, r))
			var last time.Time // of the first server's
			for i, w := range f {
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name != "EVALSHA" && cmd.Name != "SET" {
						return fakeredis.Run()
					}
					if now := time.Now(); i == 0 {
						if now.Sub(last) < time.Second {
							t.Errorf("the first server is asked again after %v", now.Sub(last))
						}
						last = now
					}
					return fakeredis.Reply("-OOM command not allowed when used memory > 'maxmemory'.\r\n")
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := r.Lock(ctx); err == nil {
				t.Error("the lock is had")
			}
			for _, w := range f {
				w.srv.Intercept(nil)
			}
			time.Sleep(40 * time.Second)
			f.free()
		})
	}
}
