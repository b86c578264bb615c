package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

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
		if asked != 3 {
			t.Errorf("asked %d times", asked)
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
