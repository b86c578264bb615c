package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !done() {
		select {
		case <-timeout:
			t.Fatalf("%s has not come true", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// locksOf returns a client of the locks in a cluster.
func locksOf(t *testing.T, c *redistest.Cluster, cfg lock.Config) (*lock.Client, *cluster.Cluster) {
	t.Helper()
	nodes, err := cluster.Open(t.Context(), cluster.Config{Addrs: c.Addrs(), Node: c.Config()})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := lock.New(nodes, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(locks.Close(), nodes.Close()); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return locks, nodes
}

func lockIn(t *testing.T, l interface {
	Lock(context.Context, ...lock.Option) (*lock.Lease, error)
}, opts ...lock.Option) *lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := l.Lock(ctx, opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func waitLost(t *testing.T, l *lock.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Fatal("the holder was not told that the lock is lost")
	}
}

func unlock(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock() = %v", err)
	}
}

// Locks of all kinds in all slots: they exclude, wake who waits in another process, are renewed, and leave nothing.
func TestLocksInACluster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		here, _ := locksOf(t, c, lock.Config{Lease: 3 * time.Second, RenewEvery: 200 * time.Millisecond})
		there, _ := locksOf(t, c, lock.Config{})
		var wg sync.WaitGroup
		for i := range 12 {
			name := fmt.Sprint("job", i)
			for _, kind := range []func(*lock.Client, string) locker{
				func(c *lock.Client, name string) locker { return c.Reentrant(name) },
				func(c *lock.Client, name string) locker { return c.Fair("fair:" + name) },
				func(c *lock.Client, name string) locker { return c.Fenced("{fenced:" + name + "}:x") },
				func(c *lock.Client, name string) locker { return c.ReadWrite("rw:" + name).Write() },
			} {
				wg.Go(func() { handOver(t, kind(here, name), kind(there, name), there) })
			}
		}
		wg.Wait()
		eventually(t, "that nothing is left", func() bool { return left(c) == "" })
	})
}

type locker interface {
	Lock(context.Context, ...lock.Option) (*lock.Lease, error)
	TryLock(context.Context, ...lock.Option) (*lock.Lease, error)
}

// handOver has one lease given from one client to another. That of the first is renewed, so only being woken explains that
// the other gets it.
func handOver(t *testing.T, from, to locker, waiting *lock.Client) {
	lease, err := from.Lock(t.Context())
	if err != nil {
		t.Errorf("Lock() = %v", err)
		return
	}
	if _, err := to.TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("TryLock() of a lock that is taken = %v", err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := to.Lock(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	first := lease.ValidUntil()
	for !lease.ValidUntil().After(first) && lease.Err() == nil {
		<-time.After(5 * time.Millisecond)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock() = %v", err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("the next holder: %v", err)
		}
	case <-time.After(patience):
		t.Errorf("nobody was woken, of %d", waiting.Stats().Waiting)
	}
}

// Locks of several slots and masters are taken all or none, with a lease of their own too, which counts from the last of them.
func TestMultiInACluster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		here, _ := locksOf(t, c, lock.Config{})
		there, _ := locksOf(t, c, lock.Config{})
		var members []lock.Member
		for i := range 6 {
			members = append(members, here.Reentrant(fmt.Sprint("job", i)))
		}
		m, err := lock.NewMulti(members...)
		if err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]lock.Option{nil, {lock.For(time.Minute)}} {
			lease := lockIn(t, m, opts...)
			if _, err := there.Reentrant("job3").TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("TryLock() of one that is taken = %v", err)
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("Check() = %v", err)
			}
			unlock(t, lease)
		}
		taken := lockIn(t, there.Reentrant("job3"))
		if _, err := m.TryLock(t.Context(), lock.For(time.Minute)); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() with one of them taken = %v", err)
		}
		unlock(t, taken)
		eventually(t, "that nothing is left", func() bool { return left(c) == "" })
	})
}

// left is what keys and channels the cluster has, but for tokens.
func left(c *redistest.Cluster) string {
	var b strings.Builder
	for _, s := range c.Masters() {
		for key := range s.Do("KEYS", "*").All() {
			if name, _ := key.Text(); !strings.HasPrefix(name, "redisson_lock_token:") {
				fmt.Fprintln(&b, name)
			}
		}
		for channel := range s.Do("PUBSUB", "CHANNELS").All() {
			if name, _ := channel.Text(); strings.HasPrefix(name, "redisson") {
				fmt.Fprintln(&b, name)
			}
		}
	}
	return b.String()
}

// An Owner takes a fair lock again, whichever channels there are.
func TestFairReentryInACluster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		for _, publish := range []lock.Publishing{lock.PublishAuto, lock.PublishPlain} {
			locks, _ := locksOf(t, c, lock.Config{Publish: publish})
			owner := lock.As(locks.NewOwner())
			outer := lockIn(t, locks.Fair("job"), owner)
			unlock(t, lockIn(t, locks.Fair("job"), owner))
			unlock(t, outer)
		}
	})
}

// List goes through all masters. Keys whose braces make locks of them impossible do not stop it.
func TestListInACluster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, nodes := locksOf(t, c, lock.Config{})
		for _, name := range []string{"job{", "job{}", "job}"} {
			if _, err := nodes.Do(t.Context(), "SET", name, 1); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			defer unlock(t, lockIn(t, locks.Reentrant(fmt.Sprint("job", i))))
		}
		found := map[string]bool{}
		for l, err := range locks.List(t.Context(), "job*") {
			if err != nil {
				t.Fatalf("List() = %v", err)
			}
			found[l.Name] = len(l.Info.Holders) == 1
		}
		if len(found) != 20 {
			t.Errorf("List() finds %v, want 20 locks", found)
		}
	})
}

// The watchdog goes on renewing the locks of the other masters while one hangs, and tells the loss of that one's.
func TestSickNodeCostsItsOwnLeases(t *testing.T) {
	noFailover := redistest.Options{Args: []string{"--cluster-replica-no-failover", "yes"}}
	redistest.RunClusters(t, noFailover, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, _ := locksOf(t, c, lock.Config{Lease: 3 * time.Second, Acks: lock.AcksOff})
		sick := c.Owner(cluster.Slot("job"))
		theirs := lockIn(t, locks.Reentrant("job"))
		var others []*lock.Lease
		for i := 0; len(others) < 4; i++ {
			name := fmt.Sprint("other", i)
			if c.Owner(cluster.Slot(name)) != sick {
				others = append(others, lockIn(t, locks.Reentrant(name)))
			}
		}
		sick.Pause()
		defer sick.Continue()
		waitLost(t, theirs)
		if lost, ok := errors.AsType[*lock.LostError](theirs.Err()); !ok || lost.Reason != lock.Unreachable {
			t.Errorf("Err() of the lock on the master that hangs = %v", theirs.Err())
		}
		for _, l := range others {
			if err := l.Check(t.Context()); err != nil {
				t.Errorf("Check() of a lock on another master = %v", err)
			}
			unlock(t, l)
		}
	})
}

// A lock that the promoted replica does not know is lost: its holder is told at the next renewal, and the next token is larger.
func TestLockLostInAFailover(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, nodes := locksOf(t, c, lock.Config{Lease: 20 * time.Second, RenewEvery: 100 * time.Millisecond, Acks: lock.AcksOff})
		lease := lockIn(t, locks.Fenced("job"))
		// What a replica that lags has not got:
		if _, err := nodes.Do(t.Context(), "DEL", "job", "redisson_lock_token:{job}"); err != nil {
			t.Fatal(err)
		}
		replica := c.Replica(c.Owner(cluster.Slot("job")))
		c.Promote(replica)
		waitLost(t, lease)
		if lost, ok := errors.AsType[*lock.LostError](lease.Err()); !ok || lost.Reason != lock.Forced {
			t.Errorf("Err() = %v, want that the lock is gone", lease.Err())
		}
		next := lockIn(t, locks.Fenced("job"))
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d, which was lost", next.Token(), lease.Token())
		}
		unlock(t, next)
	})
}

// A replica that hangs acknowledges nothing: the acquire is undone and says why. With none asked for, the lock is had.
func TestAcknowledgement(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, nodes := locksOf(t, c, lock.Config{AckTimeout: 300 * time.Millisecond})
		careless, _ := locksOf(t, c, lock.Config{Acks: lock.AcksOff})
		strict, _ := locksOf(t, c, lock.Config{Acks: 2, AckTimeout: 100 * time.Millisecond})
		unlock(t, lockIn(t, locks.Reentrant("job")))
		if _, err := strict.Reentrant("job").Lock(t.Context()); !errors.Is(err, lock.ErrNotReplicated) {
			t.Errorf("Lock() that asks for two replicas where there is one = %v", err)
		}
		eventually(t, "that it is undone", func() bool { return left(c) == "" })

		replica := c.Replica(c.Owner(cluster.Slot("job")))
		replica.Pause()
		owner := locks.NewOwner()
		for _, opts := range [][]lock.Option{nil, {lock.As(owner)}, {lock.As(owner)}} {
			if _, err := locks.Reentrant("job").Lock(t.Context(), opts...); !errors.Is(err, lock.ErrNotReplicated) {
				t.Errorf("Lock() while the replica hangs = %v", err)
			}
			eventually(t, "that it is undone", func() bool {
				v, err := nodes.Do(t.Context(), "EXISTS", "job")
				there, _ := v.Bool()
				return err == nil && !there
			})
		}
		unlock(t, lockIn(t, careless.Reentrant("job")))
		if err := locks.CountDownLatch("job").Wait(t.Context()); err != nil {
			t.Errorf("Wait() for a count of 0, which there is nothing to acknowledge about, = %v", err)
		}
		replica.Continue()
		eventually(t, "that the replica acknowledges again", func() bool {
			lease, err := locks.Reentrant("job").TryLock(t.Context())
			if err != nil {
				return false
			}
			unlock(t, lease)
			return true
		})
	})
}
