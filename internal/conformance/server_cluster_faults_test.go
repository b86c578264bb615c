package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

func slotOf(name string) int { return cluster.Slot(name) }

// process is two clients of the locks in a cluster, who are strangers to each other.
type process struct {
	locks []*lock.Client
	nodes []*cluster.Cluster
}

// processOf opens clients whose calls outlast a failover, and give up a server that does not answer after timeout.
func processOf(t *testing.T, c *redistest.Cluster, cfg lock.Config, timeout time.Duration) *process {
	t.Helper()
	p := &process{}
	for range 2 {
		node := c.Config()
		node.Timeout = timeout
		node.Retry = conn.Retry{Attempts: 1 << 20, Budget: -1}
		nodes, err := cluster.Open(t.Context(), cluster.Config{Addrs: c.Addrs(), Node: node})
		if err != nil {
			t.Fatal(err)
		}
		locks, err := lock.New(nodes, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.locks, p.nodes = append(p.locks, locks), append(p.nodes, nodes)
	}
	t.Cleanup(func() { p.close(t) })
	return p
}

func (p *process) any(name string) locker { return p.locks[rand.IntN(len(p.locks))].Reentrant(name) }

func (p *process) close(t *testing.T) {
	for i := range p.locks {
		closeLocks(t, p.locks[i], p.nodes[i])
	}
}

// closeLocks closes locks and its server. On a busy machine the second of Close is not enough to take back what was cancelled.
func closeLocks(t *testing.T, locks *lock.Client, server io.Closer) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := errors.Join(locks.CloseContext(ctx), server.Close()); err != nil {
		t.Errorf("CloseContext() = %v", err)
	}
}

// Masters are killed and stopped while 64 goroutines lock and unlock 100 names and 20 wait for another. The only errors are
// those that must be; nobody has a lock together with somebody else, as a replica has acknowledged each; the lock that is
// held outlasts its master; all waiters are served, each lock is had again, and the holder of a lock that the new master does
// not know is told.
func TestLocksThroughFailovers(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		p := processOf(t, c, lock.Config{Lease: 30 * time.Second, RenewEvery: 500 * time.Millisecond}, 2*time.Second)
		l := startLocking(t, jobs(), p.any)
		l.mayFail.Store(true)
		begin := time.Now()
		for round := 0; round == 0 || time.Since(begin) < torture(t); round++ {
			kill := (proto+round)%2 == 0
			if !kill {
				l.fewer.Store(true)
			}
			loseMaster(t, c, p, fmt.Sprintf("held-%d-%d-", proto, round), kill)
		}
		l.goOn()
		l.end()
		p.close(t)
		redistest.NoGoroutines(t)
	})
}

// loseMaster kills or stops a master.
func loseMaster(t *testing.T, c *redistest.Cluster, p *process, prefix string, kill bool) {
	t.Helper()
	old := c.Masters()[rand.IntN(3)]
	names := namesOf(c, old, prefix, 3)
	w := startWaiters(t, p.locks[0], p.any, names[0], true)
	lost := lockIn(t, p.locks[1].Reentrant(names[1]))
	eventually(t, "that all wait", func() bool { return p.locks[0].Stats().Waiting+p.locks[1].Stats().Waiting >= 20 })
	mend := old.Restart
	if kill {
		old.Kill()
	} else {
		old.Pause()
		mend = old.Continue
	}
	defer func() {
		mend()
		c.Await()
	}()
	c.AwaitTakeover(old)
	begin := time.Now()
	taken := lockAtLast(t, p, names[2])
	t.Logf("first lock %v after the takeover", time.Since(begin))
	// As if the new master had never heard of it:
	if _, err := p.nodes[0].Do(t.Context(), "DEL", names[1]); err != nil {
		t.Error(err)
	}
	awaitLost(t, lost, lock.Forced)
	w.free()
	if err := taken.Unlock(t.Context()); err != nil && !due(err) {
		t.Error(err)
	}
}

// lockAtLast takes a lock, as often as it must be tried: the new master may not be known yet to have no replica.
func lockAtLast(t *testing.T, p *process, name string) (lease *lock.Lease) {
	t.Helper()
	eventually(t, "that "+name+" is had", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		if lease, err = p.any(name).Lock(ctx); err != nil && !due(err) {
			t.Fatalf("Lock of %s: %v", name, err)
		}
		return err == nil
	})
	return lease
}

// Slots migrate to and fro, with locks that are held, waited for, and taken by others all the time. Nothing fails.
func TestLocksThroughMigration(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		p := processOf(t, c, lock.Config{Lease: 20 * time.Second, RenewEvery: 200 * time.Millisecond}, 0)
		masters := c.Masters()
		moving := namesOf(c, masters[0], fmt.Sprintf("moving-%d-", proto), 4)
		var held []*lock.Lease
		var names []string
		for i, name := range moving {
			held = append(held, lockIn(t, p.locks[0].Fenced("{"+name+"}held")))
			for j := range 25 {
				names = append(names, fmt.Sprintf("{%s}%d-%d", name, i, j))
			}
		}
		l := startLocking(t, names, p.any)
		begin := time.Now()
		for round := 0; round < 3 || time.Since(begin) < torture(t) || round%3 != 0; round++ {
			from, to := masters[round%3], masters[(round+1)%3]
			w := startWaiters(t, p.locks[0], p.any, fmt.Sprintf("{%s}waited-%d", moving[0], round), false)
			for i, name := range moving {
				moveInSteps(t, c, slotOf(name), from, to)
				if i == 1 {
					w.free()
				}
			}
		}
		l.goOn()
		l.end()
		for _, lease := range held {
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("a lock that was held all the time: %v", err)
			}
			unlock(t, lease)
		}
		var asked, moved uint64
		for _, n := range p.nodes {
			asked, moved = asked+n.Stats().Asked, moved+n.Stats().Moved
		}
		if asked == 0 || moved == 0 {
			t.Errorf("%d ASK and %d MOVED: nothing was tried hard", asked, moved)
		}
		eventually(t, "that nothing is left", func() bool { return left(c) == "" })
	})
}

// moveInSteps migrates a slot, some keys at a time.
func moveInSteps(t *testing.T, c *redistest.Cluster, slot int, from, to *redistest.Server) {
	t.Helper()
	if err := c.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = c.MoveKeys(slot, from, to, 3); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Millisecond)
	}
	if err := c.EndMove(slot, to); err != nil {
		t.Fatal(err)
	}
}

// A node comes, takes slots over with the locks in them, gives them back and goes; then nodes are restarted one by one, each
// master when its replica has taken over. No lock that is held is lost, and each one is had again.
func TestLocksWhileNodesComeAndGo(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		p := processOf(t, c, lock.Config{Lease: 20 * time.Second, RenewEvery: 500 * time.Millisecond}, 0)
		l := startLocking(t, jobs(), p.any)
		old := c.Masters()[0]
		names := namesOf(c, old, fmt.Sprintf("held-%d-", proto), 3)
		w := startWaiters(t, p.locks[0], p.any, names[0], true)
		added := c.Add()
		for _, name := range names {
			c.Move(slotOf(name), added)
		}
		c.Await()
		unlock(t, lockIn(t, p.any(names[1])))
		for _, name := range names {
			c.Move(slotOf(name), old)
		}
		c.Await()
		c.Remove(added)

		l.mayFail.Store(true) // what is on its way when a server stops may have run
		l.fewer.Store(true)
		nodes := c.Nodes()
		if torture(t) == 0 {
			nodes = []*redistest.Server{old}
		}
		for _, s := range nodes {
			for _, m := range c.Masters() {
				if m == s {
					c.Promote(c.Replica(s))
				}
			}
			s.Stop()
			lease := lockAtLast(t, p, names[2])
			s.Restart()
			c.Await()
			if err := lease.Unlock(t.Context()); err != nil && !due(err) {
				t.Error(err)
			}
		}
		w.free()
		l.goOn()
		l.end()
	})
}
