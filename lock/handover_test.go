package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/pubsub"
)

// long lets what is held for long be handed over too.
var long = lock.Config{HandOverFor: time.Hour}

// byScript asks for a lease that nobody renews: it is handed over by a script.
var byScript = lock.For(10 * time.Minute)

// line has n callers of c take turns, in order, each as soon as the one before lets go, and returns what they got. Then it
// unlocks first.
func line(t *testing.T, w *world, n int, first *lock.Lease, take func() (*lock.Lease, error)) (tokens []int64) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			l, err := take()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tokens = append(tokens, l.Token())
			mu.Unlock()
			w.sleep(time.Second)
			if err := l.Err(); err != nil {
				t.Error(err)
			}
			mustUnlock(t, l)
		})
		w.sleep(10 * time.Millisecond)
	}
	w.srv.ClearLog()
	mustUnlock(t, first)
	wg.Wait()
	return tokens
}

// A change of hands within a process is one script, and nobody else is told.
func TestHandOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		job := c.Fenced("job")
		first, err := job.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tokens := line(t, w, 8, first, func() (*lock.Lease, error) { return job.Lock(t.Context()) })
		if len(tokens) != 8 {
			t.Errorf("%d of 8 callers got the lock", len(tokens))
		}
		last := first.Token()
		for _, token := range tokens {
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
		}
		// Eight hand-overs, the release of the last, and the renewals.
		if n, said := w.srv.Count("EVALSHA"), len(w.srv.Messages()); n > 8+1+2 || said != 1 {
			t.Errorf("%d scripts and %d messages for eight changes of hands, want 9 and 1", n, said)
		}
		w.sleep(time.Second)
		w.srv.Do("DEL", "redisson_lock_token:{job}")
		w.free()
	})
}

// A hand-over that arrives after its release was repeated gives the lock to nobody.
func TestLateHandOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		lease := mustLock(t, c, "job", byScript)
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job", byScript) }()
		w.sleep(time.Second)
		arrive := w.late("handover")
		mustUnlock(t, lease)
		next := <-got
		arrive()
		if err := next.Check(t.Context()); err != nil {
			t.Errorf("the next has lost the lock: %v", err)
		}
		mustUnlock(t, next)
		arrive()
		w.sleep(latchLife)
		w.free()
	})
}

// Others get their turn after so many hand-overs, or so long.
func TestHandOverEnds(t *testing.T) {
	for _, test := range []struct {
		name      string
		cfg       lock.Config
		strangers int // who listen too
		messages  int
	}{
		{"after two", lock.Config{HandOvers: 2, HandOverFor: time.Hour}, 1, 7},        // of the 3rd, 6th, 9th and last release; three more for the stranger
		{"after two, alone", lock.Config{HandOvers: 2, HandOverFor: time.Hour}, 0, 2}, // of the 3rd, which tells that, and the last
		{"never", lock.Config{HandOvers: -1, HandOverFor: time.Hour}, 0, 11},
		{"after a while", lock.Config{HandOverFor: 3 * time.Second}, 0, 3},
		{"by default", lock.Config{}, 0, 11},                                                                                     // since each holds it for longer
		{"after a third of a lease", lock.Config{Lease: 9 * time.Second, RenewEvery: time.Second, HandOverFor: time.Hour}, 0, 3}, // of the 5th, 9th and last
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(test.cfg)
				for range test.strangers {
					s := pubsub.New(w.pool(conn.Config{}), pubsub.Config{})
					defer s.Close()
					if _, err := s.Subscribe(t.Context(), jobChannel); err != nil {
						t.Fatal(err)
					}
				}
				lease := mustLock(t, c, "job")
				line(t, w, 10, lease, func() (*lock.Lease, error) { return c.Reentrant("job").Lock(t.Context()) })
				if got := len(w.srv.Messages()); got != test.messages {
					t.Errorf("%d messages for 11 releases, want %d", got, test.messages)
				}
			})
		})
	}
}

// When a series ends, another process that waits gets the lock although it is slower to ask; where nobody wants it, it is
// taken again at once.
func TestOthersComeFirstAfterASeries(t *testing.T) {
	for _, test := range []struct {
		name    string
		rivals  int
		listens bool // a client that knows nothing of the line listens, and never takes its turn
		atLeast int  // of a hundred turns are theirs
		most    time.Duration
	}{
		{"one who waits", 1, false, 20, 150 * time.Millisecond},
		{"nobody", 0, false, 0, 110 * time.Millisecond},
		{"one who listens", 0, true, 0, 700 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				cfg := lock.Config{HandOvers: 2, HandOverFor: time.Hour}
				c, rival := w.client(cfg), w.client(cfg)
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if isScript(cmd, "acquire") && slices.ContainsFunc(cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, rival.ID()) }) {
						return fakeredis.Delay(100*time.Microsecond, fakeredis.Run())
					}
					return fakeredis.Run()
				})
				if test.listens {
					s := pubsub.New(w.pool(conn.Config{}), pubsub.Config{})
					defer s.Close()
					if _, err := s.Subscribe(t.Context(), jobChannel); err != nil {
						t.Fatal(err)
					}
				}
				var turns, theirs atomic.Int64
				var wg sync.WaitGroup
				take := func(c *lock.Client, had *atomic.Int64) {
					for turns.Load() < 100 {
						lease := mustLock(t, c, "job")
						turns.Add(1)
						had.Add(1)
						w.sleep(time.Millisecond)
						mustUnlock(t, lease)
					}
				}
				begin := time.Now()
				for range 5 {
					wg.Go(func() { take(c, new(atomic.Int64)) })
				}
				for range test.rivals {
					wg.Go(func() { take(rival, &theirs) })
				}
				wg.Wait()
				if took := time.Since(begin); int(theirs.Load()) < test.atLeast || took > test.most {
					t.Errorf("%d turns in %v, of which others had %d, want %d at least, and %v at most", turns.Load(), took, theirs.Load(), test.atLeast, test.most)
				}
				w.srv.Intercept(nil)
				w.sleep(time.Second)
			})
		})
	}
}

// While clients listen that know nothing of the line, each caller of the process has one turn in a series.
func TestSeriesBesideVisitors(t *testing.T) {
	for _, test := range []struct {
		name, channel, kind, release string
		lock                         func(*lock.Client) (*lock.Lease, error)
	}{
		{"reentrant", jobChannel, "reentrant", "single", func(c *lock.Client) (*lock.Lease, error) { return c.Reentrant("job").Lock(context.Background()) }},
		{"reentrant, by a script", jobChannel, "reentrant", "single", func(c *lock.Client) (*lock.Lease, error) {
			return c.Reentrant("job").Lock(context.Background(), byScript)
		}},
		{"write", jobReadWrite, "write", "release", func(c *lock.Client) (*lock.Lease, error) {
			return c.ReadWrite("job").Write().Lock(context.Background())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				const callers, most = 4, 200
				c := w.client(lock.Config{HandOverFor: time.Hour})
				sub := pubsub.New(w.pool(conn.Config{}), pubsub.Config{})
				defer sub.Close()
				if _, err := sub.Subscribe(t.Context(), test.channel); err != nil {
					t.Fatal(err)
				}
				var turns, releases atomic.Int64
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if isScriptOf(test.kind, cmd, test.release) {
						releases.Add(1)
					}
					return fakeredis.Run()
				})
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for turns.Add(1) <= most {
							lease, err := test.lock(c)
							if err != nil {
								t.Error(err)
								return
							}
							w.sleep(time.Millisecond)
							mustUnlock(t, lease)
						}
					})
				}
				wg.Wait()
				const first = 17 // the first series begins before a release has told of the listener
				if least := int64(most-first) / callers; releases.Load() < least {
					t.Errorf("%d releases for %d turns, want %d at least", releases.Load(), most, least)
				}
				w.srv.Intercept(nil)
				w.sleep(time.Second)
			})
		})
	}
}

// A hand-over without an answer is a release that is repeated, and an acquire that is taken back, whether it has run or not.
func TestHandOverWithoutAnswer(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{
		"not run": fakeredis.Close(),
		"run":     fakeredis.RunThenClose(),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(long)
				lease := mustLock(t, c, "job", byScript)
				got := make(chan *lock.Lease)
				go func() { got <- mustLock(t, c, "job", byScript) }()
				w.sleep(time.Second)
				w.onScript("handover", func(n int) fakeredis.Action {
					if n == 1 {
						return action
					}
					return fakeredis.Run()
				})
				start := time.Now()
				mustUnlock(t, lease)
				next := <-got
				if took := time.Since(start); took > time.Second {
					t.Errorf("the next has the lock after %v, and not once the hand-over is taken back", took)
				}
				w.sleep(time.Minute) // late repeats would do harm now
				if err := next.Check(t.Context()); err != nil {
					t.Errorf("the next has lost the lock: %v", err)
				}
				mustUnlock(t, next)
				w.sleep(30 * time.Second)
				w.free()
			})
		})
	}
}

// A hand-over whose answer comes when the next one's lease is over is taken back, and the next one asks for itself.
func TestHandOverTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		lease := mustLock(t, c, "job")
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job", lock.For(time.Second)) }()
		w.sleep(time.Second)
		heir := ""
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if !isScript(cmd, "handover") {
				return fakeredis.Run()
			}
			heir = cmd.Args[len(cmd.Args)-2]
			return fakeredis.Run().Late(1500 * time.Millisecond)
		})
		mustUnlock(t, lease)
		next := <-got
		if heir == "" || next.Owner() == heir {
			t.Errorf("the next asks again as %q, which is being undone", next.Owner())
		}
		if err := next.Check(t.Context()); err != nil {
			t.Errorf("the next has no lock: %v", err)
		}
		mustUnlock(t, next)
		w.sleep(10 * time.Second)
		w.free()
	})
}

// A waiter that leaves while the lock is being handed over to it does not keep it.
func TestHandOverToOneWhoLeaves(t *testing.T) {
	for name, close := range map[string]bool{"its context ends": false, "the client is closed": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(long)
				lease := mustLock(t, c, "job", byScript)
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error)
				go func() {
					_, err := c.Reentrant("job").Lock(ctx, byScript)
					failed <- err
				}()
				w.sleep(time.Second)
				w.onScript("handover", func(int) fakeredis.Action {
					return fakeredis.Delay(100*time.Millisecond, fakeredis.Run())
				})
				unlocked := make(chan error)
				go func() { unlocked <- lease.Unlock(t.Context()) }()
				w.sleep(50 * time.Millisecond)
				begin := time.Now()
				if close {
					go func() {
						if err := c.Close(); err != nil {
							t.Error(err)
						}
					}()
				} else {
					cancel()
				}
				if err := <-failed; err == nil || time.Since(begin) > 0 {
					t.Errorf("Lock() = %v after %v, want an error at once", err, time.Since(begin))
				}
				if err := <-unlocked; err != nil {
					t.Errorf("Unlock() = %v", err)
				}
				cancel()
				w.sleep(10 * time.Second)
				w.free()
			})
		})
	}
}

// Who is refused the script, and who has lost the lock, gives it back, or does not, as without anybody in line.
func TestHandOverRefused(t *testing.T) {
	for name, harm := range map[string]func(w *world){
		"the script fails": func(w *world) {
			w.onScript("handover", func(int) fakeredis.Action { return fakeredis.Reply("-NOPERM no\r\n") })
		},
		"the lock is lost": func(w *world) { w.srv.Do("DEL", "job") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(long)
				lease := mustLock(t, c, "job", byScript)
				got := make(chan *lock.Lease)
				go func() { got <- mustLock(t, c, "job", byScript) }()
				w.sleep(time.Second)
				harm(w)
				err := lease.Unlock(t.Context())
				if lost := name == "the lock is lost"; (err != nil) != lost {
					t.Errorf("Unlock() = %v", err)
				} else if lost {
					wantErr(t, "Unlock()", err, lock.ErrNotHeld)
				}
				begin := time.Now()
				next := <-got
				if waited := time.Since(begin); waited > 0 {
					t.Errorf("the next waited for another %v", waited)
				}
				mustUnlock(t, next)
			})
		})
	}
}

// An Owner may have further holds, which a hand-over would take away; it gives back one.
func TestHandOverIsNotForOwners(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		owner := c.NewOwner()
		outer, inner := mustLock(t, c, "job", lock.As(owner)), mustLock(t, c, "job", lock.As(owner))
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job") }()
		w.sleep(time.Second)
		mustUnlock(t, inner)
		w.sleep(time.Second)
		select {
		case <-got:
			t.Fatal("a lock that its owner has was handed over")
		default:
		}
		mustUnlock(t, outer)
		next := <-got
		if got := fmt.Sprint(w.srv.Count("EVALSHA") > 0, next.Err()); got != "true <nil>" {
			t.Error(got)
		}
		mustUnlock(t, next)
	})
}

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
