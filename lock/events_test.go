package lock_test

import (
	"context"
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
		got := seen.take()
		want := []string{"missed", "released b " + freed.Owner(), "acquired c " + taken.Owner(), "watching"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
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
