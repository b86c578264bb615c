package lock_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// watchInTurn begins a Watch. expect fails the test unless the next events are those wanted.
func watchInTurn(t *testing.T, c *lock.Client, pattern string) (expect func(want ...string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	next, stop := iter.Pull2(c.Watch(ctx, pattern))
	t.Cleanup(func() { stop(); cancel() })
	return func(want ...string) {
		t.Helper()
		for _, wanted := range want {
			ev, err, _ := next()
			if got := strings.TrimSpace(fmt.Sprintf("%s %s %s", ev.What, ev.Name, ev.Owner)); err != nil || got != wanted || ev.Err != nil {
				t.Fatalf("event %+v, %v, want %q", ev, err, wanted)
			}
		}
	}
}

// On a real server, in both protocols.
func TestServerWatch(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		s.Do("CONFIG", "SET", "notify-keyspace-events", "KA")
		var clients [2]*lock.Client
		for i := range clients {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		mine, c := clients[0], clients[1]
		held := mustLock(t, mine, "orders:1")
		expect := watchInTurn(t, c, "orders:*")
		expect("held orders:1 "+held.Owner(), "watching")
		mustUnlock(t, held)
		expect("released orders:1 " + held.Owner())
		lease := mustLock(t, mine, "orders:2")
		expect("acquired orders:2 " + lease.Owner())
		if _, err := c.Reentrant("orders:2").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("forced orders:2 " + lease.Owner())
		short := mustLock(t, mine, "orders:3", lock.For(400*time.Millisecond))
		expect("acquired orders:3 "+short.Owner(), "expired orders:3 "+short.Owner())
	})
}

// An evicted lock is taken from its owner.
func TestServerWatchOfAnEviction(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("CONFIG", "SET", "notify-keyspace-events", "Kg$hxe")
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease := mustLock(t, c, "job", lock.For(time.Minute))
		expect := watchInTurn(t, c, "")
		expect("held job "+lease.Owner(), "watching")
		s.Do("CONFIG", "SET", "maxmemory-policy", "volatile-random")
		s.Do("CONFIG", "SET", "maxmemory", "1")
		_, _ = s.Try("SET", "key", "value") // has the server look for memory
		s.Do("CONFIG", "SET", "maxmemory", "0")
		expect("forced job " + lease.Owner())
	})
}
