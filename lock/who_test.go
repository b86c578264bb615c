package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// names are the names of the connections to the server.
func (w *world) names() (list []string) {
	synctest.Wait()
	for _, c := range w.srv.Conns() {
		list = append(list, c.Name)
	}
	return list
}

// Every connection of a client has its name: one that was open before, one that is dialed later, and that for wake-ups.
func TestConnectionsAreNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{ClientName: "orders"}, lock.Config{Name: "web-7"})
		lease := mustLock(t, c, "job", lock.For(time.Hour))
		waiting, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { _, err := c.Reentrant("job").Lock(waiting); waited <- err }()
		want := "orders,web-7:" + c.ID()
		for _, cut := range []bool{false, true} {
			if cut {
				w.srv.KillConns(nil)
				w.sleep(5 * time.Second)
			}
			names := w.names()
			if len(names) != 2 {
				t.Errorf("%d connections, want 2", len(names))
			}
			for _, name := range names {
				if name != want {
					t.Errorf("a connection is named %q, want %q", name, want)
				}
			}
		}
		cancel()
		<-waited
		mustUnlock(t, lease)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		for _, name := range w.names() {
			if name != "orders" {
				t.Errorf("a connection is named %q after Close", name)
			}
		}
	})
}

// Two clients of one pool share its connections, and a pool without names gets none.
func TestNamesOfAPool(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		var want []string
		for _, name := range []string{"a", "b"} {
			c, err := lock.New(pool, lock.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			want = append(want, name+":"+c.ID())
		}
		if got := w.names(); len(got) != 1 || got[0] != strings.Join(want, ",") {
			t.Errorf("the connections are named %q, want %q", got, want)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		w.clientOn(conn.Config{NoIdentity: true}, lock.Config{})
		if got := w.names(); len(got) != 1 || got[0] != "" {
			t.Errorf("the connections are named %q, want no name", got)
		}
		for _, name := range []string{"a b", "a,b", "é"} {
			if _, err := lock.New(pool, lock.Config{Name: name}); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New with the Name %q = %v", name, err)
			}
		}
	})
}

// A server that refuses the name serves all the same.
func TestNameRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == "SETNAME" {
				return fakeredis.Reply("-NOPERM no\r\n")
			}
			return fakeredis.Run()
		})
		c := w.client(lock.Config{})
		mustUnlock(t, mustLock(t, c, "job"))
		w.srv.KillConns(nil)
		mustUnlock(t, mustLock(t, c, "job"))
	})
}

func TestDefaultName(t *testing.T) {
	host, _ := os.Hostname()
	for pod, want := range map[string]string{"": fmt.Sprintf("%s-%d", host, os.Getpid()), "web 7,é": "web-7--"} {
		t.Setenv("POD_NAME", pod)
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			if got := w.names(); len(got) != 1 || got[0] != want+":"+c.ID() {
				t.Errorf("with POD_NAME=%s the connections are named %q, want %q", pod, got, want)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		first := mustLock(t, c, "first")
		w.sleep(41 * time.Second)
		second, err := c.Fenced("second").Lock(t.Context(), lock.For(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, c, "third", lock.For(time.Second))
		w.sleep(time.Second)
		held := c.Held()
		if len(held) != 2 {
			t.Fatalf("Held() = %+v, want two leases", held)
		}
		for i, l := range []*lock.Lease{first, second} {
			h := held[i]
			if h.Name != l.Name() || h.Kind != l.Kind() || h.Owner != l.Owner() || h.Token != l.Token() || !h.ValidUntil.Equal(l.ValidUntil()) {
				t.Errorf("Held()[%d] = %+v, want %v", i, h, l)
			}
		}
		if held[0].Age != 42*time.Second || held[1].Age != time.Second || !held[0].Renewed || held[1].Renewed {
			t.Errorf("Held() = %+v", held)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
		if held := c.Held(); len(held) != 0 {
			t.Errorf("Held() = %+v after Unlock", held)
		}
	})
}

// Held, String and Unlock at once: for the race detector.
func TestHeldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					l := mustLock(t, c, "job", lock.For(time.Minute))
					go func() { _ = l.Extend(t.Context(), time.Hour) }()
					mustUnlock(t, l)
				}
			})
			wg.Go(func() {
				for range 100 {
					for _, h := range c.Held() {
						_ = h.Owner
					}
				}
			})
		}
		wg.Wait()
	})
}
