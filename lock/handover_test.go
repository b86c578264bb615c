package lock_test

import (
	"context"
	"fmt"
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

// Two callers of a process who take turns know, between two waits too, that nobody else waits: their series has no end by number.
func TestHandOverBetweenTwo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{HandOvers: 2, HandOverFor: time.Hour})
		job := c.Fenced("job") // whose leases are those of the reentrant lock, and whose line is its own
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range 10 {
					l, err := job.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					w.sleep(time.Second)
					mustUnlock(t, l)
					w.sleep(10 * time.Millisecond) // in which nobody is in line
				}
			})
			w.sleep(10 * time.Millisecond)
		}
		wg.Wait()
		if got := len(w.srv.Messages()); got != 3 {
			t.Errorf("%d messages for 20 releases, want 3: of the third, which tells that nobody else waits, and of the last two", got)
		}
	})
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

// While clients listen that know nothing of the line, a series has no more hand-overs than callers wait in the process.
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
