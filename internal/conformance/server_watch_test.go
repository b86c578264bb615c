package conformance_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// nextEvents begins a Watch. The function returns the next n events as texts, sorted.
func nextEvents(t *testing.T, c *lock.Client) func(n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	next, stop := iter.Pull2(c.Watch(ctx, "*"))
	t.Cleanup(func() { stop(); cancel() })
	return func(n int) (list []string) {
		t.Helper()
		for range n {
			ev, err, _ := next()
			if err != nil || ev.What != lock.EventMissed && ev.Err != nil {
				t.Fatalf("event %+v, %v", ev, err)
			}
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", ev.What, ev.Name, ev.Owner)))
		}
		slices.Sort(list)
		return list
	}
}

// A Watch hears each master of a cluster; a lock whose slot moves stays as it is, and a new master is heard too.
func TestWatchInACluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		for _, node := range c.Nodes() {
			node.Do("CONFIG", "SET", "notify-keyspace-events", "Kg$hxe")
		}
		mine, _ := locksOf(t, c, lock.Config{})
		other, nodes := locksOf(t, c, lock.Config{})
		next := nextEvents(t, other)
		if got := next(1); got[0] != "watching" {
			t.Fatalf("events %q", got)
		}
		var leases []*lock.Lease
		var taken, released []string
		for i := range 6 { // on all masters
			l := lockIn(t, mine.Reentrant(fmt.Sprint("job:", i)))
			leases = append(leases, l)
			taken = append(taken, fmt.Sprintf("acquired job:%d %s", i, l.Owner()))
			released = append(released, fmt.Sprintf("released job:%d %s", i, l.Owner()))
		}
		if got := next(6); !slices.Equal(got, taken) {
			t.Errorf("got  %q\nwant %q", got, taken)
		}
		slot := nodes.Slot("job:0")
		from := c.Owner(slot)
		for _, to := range c.Masters() {
			if to != from {
				c.Move(slot, to)
				break
			}
		}
		for _, l := range leases {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := next(6); !slices.Equal(got, released) {
			t.Errorf("got  %q\nwant %q", got, released)
		}
	})
}

// After a failover Watch hears the new master, and tells what has changed meanwhile.
func TestWatchAfterAFailover(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		for _, node := range c.Nodes() {
			node.Do("CONFIG", "SET", "notify-keyspace-events", "Kg$hxe")
		}
		mine, nodes := locksOf(t, c, lock.Config{})
		other, _ := locksOf(t, c, lock.Config{})
		before := lockIn(t, mine.Reentrant("job"))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		moved := false
		var after *lock.Lease
		for ev, err := range other.Watch(ctx, "job") {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case ev.What == lock.EventWatching && !moved:
				moved = true
				c.Promote(c.Replica(c.Owner(nodes.Slot("job"))))
				if err := before.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			case ev.What == lock.EventReleased && ev.Owner == before.Owner():
				after = lockIn(t, mine.Reentrant("job"))
			case ev.What == lock.EventAcquired && after != nil && ev.Owner == after.Owner():
				if err := after.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
}

// Inspect finds the holder, its process and its waiters in a cluster, wherever the lock is.
func TestInspectInACluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		mine, _ := locksOf(t, c, lock.Config{Name: "web-7"})
		other, _ := locksOf(t, c, lock.Config{Name: "on-call"})
		for i := range 6 { // on all masters
			name := fmt.Sprint("job:", i)
			lease := lockIn(t, mine.Reentrant(name))
			waited := make(chan *lock.Lease, 1)
			go func() {
				l, _ := other.Reentrant(name).Lock(t.Context())
				waited <- l
			}()
			for listening := 0; listening == 0; {
				seen, err := other.Inspect(t.Context(), name)
				if err != nil || seen.Shape != lock.ShapeLock || len(seen.Info.Holders) != 1 || seen.Info.Holders[0].Owner != lease.Owner() || seen.ClientsErr != nil {
					t.Fatalf("Inspect() = %+v, %v", seen, err)
				}
				if len(seen.Clients) != 1 || !seen.Clients[0].Connected || seen.Clients[0].Name != "web-7" || seen.Clients[0].ID != mine.ID() {
					t.Fatalf("clients %+v", seen.Clients)
				}
				listening = seen.Listening
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if l := <-waited; l == nil || l.Unlock(t.Context()) != nil {
				t.Error("the waiter has not got the lock")
			}
			if seen, err := other.Inspect(t.Context(), name); err != nil || seen.Shape != "" {
				t.Errorf("Inspect() of a free lock = %+v, %v", seen, err)
			}
		}
		permits := mine.PermitSemaphore("permits")
		if _, err := permits.TrySetPermits(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		lease, err := permits.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := other.Inspect(t.Context(), "permits"); err != nil || seen.Shape != lock.ShapePermits || len(seen.Info.Holders) != 1 || seen.Listening < 0 {
			t.Errorf("Inspect() = %+v, %v", seen, err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
