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
const patience = redistest.Patience

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
	awaitReplicas(t, c, nodes)
	locks, err := lock.New(nodes, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocks(t, locks, nodes) })
	return locks, nodes
}

// awaitReplicas waits until the nodes list the replica of each master, which they do only once they have heard how far it is.
func awaitReplicas(t *testing.T, c *redistest.Cluster, nodes *cluster.Cluster) {
	t.Helper()
	for _, master := range c.Masters() {
		if c.Replica(master) == nil {
			continue
		}
		key := namesOf(c, master, "replicated-", 1)[0]
		eventually(t, "that replicas are listed", func() bool {
			s, err := nodes.Succession(t.Context(), key, time.Now())
			return err == nil && s.Replicas > 0
		})
	}
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// An Owner reads beneath its write lock, whichever node has the lock, and goes on reading when it gives the write lock back.
func TestReadBeneathWriteInACluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, _ := locksOf(t, c, lock.Config{})
		for i := range 20 {
			both := locks.ReadWrite(fmt.Sprint("job", i))
			owner := lock.As(locks.NewOwner())
			writes := []*lock.Lease{lockIn(t, both.Write(), owner), lockIn(t, both.Write(), owner)}
			reads := []*lock.Lease{lockIn(t, both.Read(), owner), lockIn(t, both.Read(), owner)}
			for _, l := range writes {
				if _, err := both.Read().TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("TryLock of a reader beside the writer = %v", err)
				}
				unlock(t, l)
			}
			unlock(t, lockIn(t, both.Read()))
			for _, l := range reads {
				if _, err := both.Write().TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("TryLock of a writer beside the reader = %v", err)
				}
				unlock(t, l)
			}
			unlock(t, lockIn(t, both.Write()))
		}
	})
}

// List goes through all masters. Keys whose braces make locks of them impossible do not stop it.
func TestListInACluster(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
