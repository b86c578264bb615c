package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// watched collects the events of a Watch.
type watched struct {
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	events []lock.Event
	err    error
}

func watchAll(t *testing.T, c *lock.Client, pattern string) *watched {
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for ev, err := range c.Watch(ctx, pattern) {
			w.mu.Lock()
			if w.err = err; err == nil {
				w.events = append(w.events, ev)
			}
			w.mu.Unlock()
		}
	}()
	return w
}

// take returns what has come, as "what name owner".
func (w *watched) take() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.events {
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s", ev.What, ev.Name, ev.Owner))
		if ev.What == lock.EventWatching && ev.Err != nil {
			text += ", not all"
		}
		list = append(list, text)
	}
	w.events = nil
	return list
}

func (w *watched) first() lock.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[0]
}

func (w *watched) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := w.take(); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", when, got, want)
	}
}

func (w *watched) close() error {
	w.stop()
	<-w.done
	return w.err
}

// notify makes the fake publish events of keys.
func (w *world) notify(letters string) { w.srv.Do("CONFIG", "SET", "notify-keyspace-events", letters) }

// Of each kind: owners come and go as events.
func TestWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		kinds := leasedKinds(t, mine)
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "watching")
		for kind, take := range kinds {
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			w.sleep(time.Second)
			if kind == "reentrant" {
				if ev := seen.first(); !ev.At.Equal(at) || ev.Shape != lock.ShapeLock {
					t.Errorf("event %+v, want one of %v", ev, at)
				}
			}
			owner := lease.Owner()
			seen.want(t, kind, "acquired "+name+" "+owner)
			w.sleep(time.Minute) // and is renewed
			mustUnlock(t, lease)
			w.sleep(time.Second)
			seen.want(t, kind, "released "+name+" "+owner)
			lease, err = take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, lease)
			w.sleep(time.Second)
			if got := seen.take(); kind != "permits" && !slices.Equal(got, []string{"acquired job", "released job"}) {
				t.Errorf("%s: a lock held for an instant: %q", kind, got)
			}
			w.srv.Do("DEL", "redisson_lock_token:{job}")
		}
		w.srv.Do("SET", "number", "1")
		w.srv.Do("DEL", "number")
		w.srv.Do("HSET", "user", "name", "x")
		w.srv.Do("DEL", "user")
		w.sleep(time.Second)
		seen.want(t, "keys that are no locks")
		wantErr(t, "the end", seen.close(), context.Canceled)
		w.srv.Do("DEL", "permits")
	})
}

// Locks end in four ways, and Watch tells them apart.
func TestWatchTellsHowALockEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("Kg$hxe")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		early := mustLock(t, mine, "orders:0")
		other := mustLock(t, mine, "other")
		seen := watchAll(t, c, "orders:*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "held orders:0 "+early.Owner(), "watching")
		mustUnlock(t, early)
		mustUnlock(t, other)
		w.sleep(time.Second)
		seen.want(t, "a release", "released orders:0 "+early.Owner())

		for how, end := range map[string]func(l *lock.Lease){
			"forced": func(*lock.Lease) {
				if _, err := c.Reentrant("orders:1").ForceUnlock(t.Context()); err != nil {
					t.Error(err)
				}
			},
			"forced ": func(l *lock.Lease) {
				if _, err := c.ForceUnlockOwner(t.Context(), "orders:1", l.Owner()); err != nil {
					t.Error(err)
				}
			},
			" forced": func(*lock.Lease) { w.srv.Do("DEL", "orders:1") },
			"expired": func(*lock.Lease) { w.srv.Do("PEXPIRE", "orders:1", "5") },
		} {
			lease := mustLock(t, mine, "orders:1", lock.For(time.Minute))
			w.sleep(time.Second)
			end(lease)
			w.sleep(time.Second)
			seen.want(t, how, "acquired orders:1 "+lease.Owner(), strings.TrimSpace(how)+" orders:1 "+lease.Owner())
			if how == "expired" {
				w.sleep(time.Minute)
			}
			_ = lease.Unlock(t.Context())
			w.sleep(time.Second)
			seen.take()
		}
		wantErr(t, "the end", seen.close(), context.Canceled)
		w.sleep(time.Minute)
	})
}

// Without events of keys the messages for waiters tell of releases, and Watch says that there is more.
func TestWatchWithoutKeyspaceEvents(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		first := mustLock(t, mine, "a{b}")
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "held a{b} "+first.Owner(), "watching, not all")
		next := make(chan *lock.Lease)
		go func() { next <- mustLock(t, c, "a{b}") }()
		synctest.Wait()
		mustUnlock(t, first)
		second := <-next
		w.sleep(time.Second)
		seen.want(t, "a release", "released a{b} "+first.Owner(), "acquired a{b} "+second.Owner())
		mustUnlock(t, second)
		w.sleep(time.Second)
		seen.want(t, "a release", "released a{b} "+second.Owner())
		mustUnlock(t, mustLock(t, mine, "job"))
		w.sleep(time.Second)
		seen.want(t, "a lock held for an instant", "released job")
		_ = c.Close()
		<-seen.done
		wantErr(t, "after Close", seen.err, lock.ErrClosed)
	})
}

// A connection that is lost makes Watch begin again, and tell what has changed.
func TestWatchAfterAnInterruption(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		kept, freed := mustLock(t, mine, "a"), mustLock(t, mine, "b")
		seen := watchAll(t, c, "")
		w.sleep(5 * time.Second)
		seen.want(t, "at the beginning", "held a "+kept.Owner(), "held b "+freed.Owner(), "watching")
		w.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 2 }) // the watcher's alone has patterns of two kinds
		synctest.Wait()
		seen.take()
		w.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
		mustUnlock(t, freed)
		taken := mustLock(t, mine, "c")
		w.sleep(10 * time.Second)
		seen.wantInAnyOrder(t, "after an interruption", "missed", "released b "+freed.Owner(), "acquired c "+taken.Owner(), "watching")
		mustUnlock(t, kept)
		mustUnlock(t, taken)
		w.sleep(time.Second)
		seen.want(t, "afterwards", "released a "+kept.Owner(), "released c "+taken.Owner())
		_ = seen.close()
	})
}

// A caller that does not read is told how many it has missed, and what is held then.
func TestWatchOfASlowCaller(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		var list []lock.Event
		for ev, err := range c.Watch(t.Context(), "*") {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, ev)
			if ev.What == lock.EventWatching && len(list) == 1 {
				for i := range 10_100 {
					w.srv.Do("SET", fmt.Sprint("key:", i), "x")
				}
				lease := mustLock(t, mine, "job")
				defer mustUnlock(t, lease)
				synctest.Wait()
			}
			if ev.What == lock.EventWatching && len(list) > 1 {
				break
			}
		}
		if len(list) < 4 || list[1].What != lock.EventMissed || list[1].Missed != 101 || list[2].What != lock.EventAcquired || list[2].Name != "job" {
			t.Errorf("events %+v", list)
		}
		for i := range 10_100 {
			w.srv.Do("DEL", fmt.Sprint("key:", i))
		}
	})
}

// A server that refuses the subscription, or a command, ends the watch.
func TestWatchRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "PSUBSCRIBE" {
				return fakeredis.Reply("-NOPERM no channel\r\n")
			}
			return fakeredis.Run()
		})
		ended := false
		for ev, err := range c.Watch(t.Context(), "*") {
			ended = true
			if err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("%+v, %v", ev, err)
			}
		}
		if !ended {
			t.Error("no error")
		}
	})
}

// A server that refuses the subscription after an interruption, or the connection for it, ends the watch, too.
func TestWatchRefusedLater(t *testing.T) {
	for command, refusal := range map[string]string{"PSUBSCRIBE": "NOPERM no channel", "HELLO": "WRONGPASS invalid username-password pair"} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify("KA")
			seen := watchAll(t, w.client(lock.Config{}), "*")
			w.sleep(time.Second)
			seen.want(t, "at the beginning", "watching")
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == command {
					return fakeredis.Reply("-" + refusal + "\r\n")
				}
				return fakeredis.Run()
			})
			w.cutWatchers()
			w.sleep(5 * time.Minute)
			select {
			case <-seen.done:
			default:
				t.Errorf("%s refused: the watch goes on, after %q", command, seen.take())
			}
			if err := seen.close(); err == nil || !strings.Contains(err.Error(), refusal) {
				t.Errorf("%s refused: Watch ended with %v", command, err)
			}
		})
	}
}

// cutWatchers ends the connections with subscriptions.
func (w *world) cutWatchers() {
	w.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
}

// A server may come back with other settings, by a restart or a failover: Watch asks again, and says what it does not see any more.
func TestWatchOfAServerWithOtherSettings(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "watching")
		w.notify("")
		w.cutWatchers()
		w.sleep(10 * time.Second)
		seen.want(t, "without events of keys", "missed", "watching, not all")
		lease := mustLock(t, mine, "job")
		mustUnlock(t, lease)
		w.sleep(time.Second)
		seen.want(t, "the messages for waiters", "released job")
		w.notify("KA")
		w.cutWatchers()
		w.sleep(10 * time.Second)
		seen.want(t, "with events again", "missed", "watching")
		lease = mustLock(t, mine, "job")
		w.sleep(time.Second)
		mustUnlock(t, lease)
		w.sleep(time.Second)
		seen.want(t, "all events", "acquired job "+lease.Owner(), "released job "+lease.Owner())
		_ = seen.close()
	})
}

// A setting that changes while the subscription stays is noticed within half a minute.
func TestWatchOfASettingThatChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		c := w.client(lock.Config{})
		seen := watchAll(t, c, "*")
		w.sleep(time.Minute)
		seen.want(t, "at the beginning", "watching")
		w.notify("")
		w.sleep(35 * time.Second)
		seen.want(t, "without events of keys", "watching, not all")
		w.notify("KA")
		w.sleep(35 * time.Second)
		seen.want(t, "with events again", "watching")
		w.sleep(time.Hour)
		seen.want(t, "in an hour without a change")
		_ = seen.close()
	})
}

// The server is asked again until it has answered.
func TestWatchAsksUntilAnswered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		c := w.client(lock.Config{})
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		seen.want(t, "at the beginning", "watching")
		w.notify("")
		asked := 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "CONFIG" {
				if asked++; asked < 3 {
					return fakeredis.Reply("-LOADING the dataset\r\n")
				}
			}
			return fakeredis.Run()
		})
		w.cutWatchers()
		w.sleep(20 * time.Second)
		seen.want(t, "afterwards", "missed", "watching, not all")
		if asked != 4 {
			t.Errorf("asked %d times, want 3 and once more, as all locks are read again by other patterns", asked)
		}
		_ = seen.close()
	})
}

// While a server is down Watch says once that events are missed.
func TestWatchOfAServerThatIsDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		c := w.client(lock.Config{})
		w.srv.Do("SET", "number", "1")
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		seen := watchAll(t, c, "*")
		w.sleep(30 * time.Second)
		seen.want(t, "while it is down at the beginning", "missed")
		w.srv.Refuse(false)
		w.sleep(30 * time.Second)
		seen.want(t, "when it is there", "watching")
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.sleep(time.Minute)
		seen.want(t, "while it is down again", "missed")
		w.srv.Refuse(false)
		w.sleep(time.Minute)
		seen.want(t, "when it is back", "watching")
		_ = seen.close()
		w.srv.Do("DEL", "number")
	})
}

// Evictions are events of a class of their own.
func TestWatchNeedsAllClasses(t *testing.T) {
	for letters, want := range map[string]string{
		"Kg$hxe": "watching", "KA": "watching", "Kg$hx": "watching, not all", "Eg$hxe": "watching, not all", "Kghxe": "watching, not all",
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify(letters)
			seen := watchAll(t, w.client(lock.Config{}), "*")
			w.sleep(time.Second)
			seen.want(t, letters, want)
			_ = seen.close()
		})
	}
}

// Other libraries leave no sign of a release but that the key goes. A lock with a new owner ten times a second is told all the same.
func TestWatchOfABusyLock(t *testing.T) {
	for name, take := range map[string]func(w *world, owner string){
		"redsync": func(w *world, owner string) { w.srv.Do("SET", "job", owner, "PX", "30000", "NX") },
		"Redisson": func(w *world, owner string) {
			w.srv.Do("HSET", "job", owner, "1")
			w.srv.Do("PEXPIRE", "job", "30000")
		},
	} {
		for _, free := range []time.Duration{20 * time.Millisecond, 33 * time.Millisecond} {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.notify("KA")
				seen := watchAll(t, w.client(lock.Config{}), "*")
				w.sleep(time.Second)
				seen.want(t, "at the beginning", "watching")
				for i := range 1000 {
					take(w, fmt.Sprintf("54eca91f-fd35-4bcb-82a9-b499a13b8cc2:%d", i))
					w.sleep(60 * time.Millisecond)
					w.srv.Do("DEL", "job")
					w.sleep(free)
				}
				if n := len(seen.take()); n < 10 { // one look in a second at least, which may find the lock free each time
					t.Errorf("%s, free for %v: %d events of 1000 holds", name, free, n)
				}
				_ = seen.close()
			})
		}
	}
}

// A lock that AtLeast keeps taken is released by its owner, once, and what comes after it is no event.
func TestWatchOfAtLeast(t *testing.T) {
	for _, letters := range []string{"KA", ""} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify(letters)
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			kept := keptKinds(mine)
			delete(kept, "spin") // sends no messages
			if letters == "" {
				delete(kept, "plain") // nor does it
			}
			seen := watchAll(t, c, "*")
			w.sleep(time.Second)
			seen.take()
			for kind, job := range kept {
				for name, held := range map[string]time.Duration{"held for a second": time.Second, "held for an instant": 0} {
					lease, err := job.Lock(t.Context(), lock.AtLeast(5*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					owner := lease.Owner()
					w.sleep(held)
					mustUnlock(t, lease)
					w.sleep(time.Second)
					if letters == "" {
						seen.want(t, kind+" "+name+" without events of keys", "released job "+owner)
					} else {
						seen.want(t, kind+" "+name, "acquired job "+owner, "released job "+owner)
					}
					in, err := c.Inspect(t.Context(), "job")
					if err != nil || len(in.Info.Holders) != 1 || len(in.Clients) != 0 {
						t.Errorf("Inspect() = %+v, %v, want a holder without a process", in, err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err = keptKinds(c)[kind].Lock(ctx)
					cancel()
					if refused, _ := errors.AsType[*lock.NotAcquiredError](err); refused == nil || refused.Holder == "" || refused.Process != "" {
						t.Errorf("Lock() in the rest = %+v, want a holder without a process", err)
					}
					w.sleep(10 * time.Second)
					seen.want(t, kind+" "+name+", at the end of the rest")
				}
				w.srv.Do("DEL", "redisson_lock_token:{job}")
			}
			_ = seen.close()
		})
	}
}

// A Watch that begins in the rest, or reads all locks in it, finds no owner.
func TestWatchBeginsInTheRest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		mustUnlock(t, mustLock(t, mine, "job", lock.AtLeast(20*time.Second)))
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		w.cutWatchers()
		w.sleep(8 * time.Second)
		seen.want(t, "in the rest", "watching", "missed", "watching")
		if ok, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil || !ok {
			t.Errorf("ForceUnlock() = %v, %v", ok, err)
		}
		next := mustLock(t, mine, "job")
		w.sleep(time.Second)
		seen.want(t, "after the rest", "acquired job "+next.Owner())
		mustUnlock(t, next)
		_ = seen.close()
	})
}

// Names that look like parts of other names are told as they are.
func TestWatchOfOddNames(t *testing.T) {
	for _, name := range []string{
		"lockwire_nightly", "redisson_job", "{job}", "{job}x", "{job}:550e8400-e29b-41d4-a716-446655440000", "job:550e8400-e29b-41d4-a716-446655440000",
		"job:", "a[b]*",
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify("KA")
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			seen := watchAll(t, c, "")
			w.sleep(time.Second)
			seen.want(t, "at the beginning", "watching")
			lease := mustLock(t, mine, name)
			w.sleep(time.Second)
			mustUnlock(t, lease)
			w.sleep(time.Second)
			seen.want(t, "a hold", "acquired "+name+" "+lease.Owner(), "released "+name+" "+lease.Owner())
			lease = mustLock(t, mine, name)
			w.sleep(time.Second)
			if _, err := c.Reentrant(name).ForceUnlock(t.Context()); err != nil {
				t.Error(err)
			}
			w.sleep(time.Second)
			seen.want(t, "force", "acquired "+name+" "+lease.Owner(), "forced "+name+" "+lease.Owner())
			_ = lease.Unlock(t.Context())
			_ = seen.close()
		})
	}
}
