package simulation

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

// splitLease is the lease of locks with keys on two nodes.
const splitLease = 3 * time.Second

// lockable is a lock of any kind.
type lockable interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}

// anyPermit is a lock that takes a permit.
type anyPermit struct{ *lock.PermitSemaphore }

func (s anyPermit) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return s.Acquire(ctx, opts...)
}

func (s anyPermit) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return s.TryAcquire(ctx, opts...)
}

// holding is one of many ways to hold the lock mylock: the kinds in the order in which they are taken, by one Owner or each by itself.
type holding struct {
	kinds []func(c *lock.Client) lockable
	owned bool
}

func holdings() map[string]holding {
	type kinds = []func(c *lock.Client) lockable
	reentrant := func(c *lock.Client) lockable { return c.Reentrant("mylock") }
	fenced := func(c *lock.Client) lockable { return c.Fenced("mylock") }
	fair := func(c *lock.Client) lockable { return c.Fair("mylock") }
	plain := func(c *lock.Client) lockable { return c.Plain("mylock") }
	read := func(c *lock.Client) lockable { return c.ReadWrite("mylock").Read() }
	write := func(c *lock.Client) lockable { return c.ReadWrite("mylock").Write() }
	values := func(c *lock.Client) lockable { return c.FasterMulti("mylock", "a", "b") }
	permit := func(c *lock.Client) lockable { return anyPermit{c.PermitSemaphore("mylock")} }
	return map[string]holding{
		"reentrant":       {kinds{reentrant}, false},
		"reentrant twice": {kinds{reentrant, reentrant}, true},
		"fenced":          {kinds{fenced}, false},
		"fair":            {kinds{fair}, false},
		"fair twice":      {kinds{fair, fair}, true},
		"plain":           {kinds{plain}, false},
		"values":          {kinds{values}, false},
		"read":            {kinds{read}, false},
		"read twice":      {kinds{read, read}, true},
		"two readers":     {kinds{read, read}, false},
		"write":           {kinds{write}, false},
		"write twice":     {kinds{write, write}, true},
		"read beneath":    {kinds{write, read}, true},
		"permits":         {kinds{permit, permit}, false},
	}
}

// A slot that stays half migrated, with the keys of one lock on both nodes in each possible way, costs no lease, and each Unlock works. The
// lock stays taken until the last Unlock, and is free afterwards.
func TestKeysOfALockOnBothNodes(t *testing.T) {
	for name, hold := range holdings() {
		for _, awaited := range []bool{false, true} {
			if awaited && hold.owned {
				continue // others wait for the last hold of an Owner, in the same line or queue
			}
			t.Run(fmt.Sprintf("%s, awaited %v", name, awaited), func(t *testing.T) {
				last := 1
				for moved := 1; moved < last || moved == 1; moved++ {
					inFleet(t, lock.Config{Lease: splitLease}, func(t *testing.T, f *fleet) { last = f.split(t, hold, awaited, moved) })
				}
			})
		}
	}
}

// split takes a lock, moves the keys with a bit in moved, waits for more than three leases and gives the lock back. It returns the first
// number that names no set of keys.
func (f *fleet) split(t *testing.T, hold holding, awaited bool, moved int) int {
	leases := hold.take(t, f.client)
	other, err := lock.New(f.cluster, lock.Config{Lease: splitLease})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var waiters sync.WaitGroup
	defer waiters.Wait()
	for range 2 {
		if awaited {
			waiters.Go(func() { hold.pass(t, other) })
		}
	}
	time.Sleep(time.Second / 10)
	synctest.Wait()
	keys := f.keysOf(f.servers[0])
	f.opens(t, 0)
	var names []string
	for i, key := range keys {
		if moved>>i&1 == 1 {
			names = append(names, key)
			f.servers[0].MoveKey(key, f.servers[1])
		}
	}
	time.Sleep(3*splitLease + splitLease/2)
	for i, l := range leases {
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("%q of %q moved: lease %d: %v", names, keys, i, err)
		}
		if l.PermitIDs() == nil || i == 0 {
			if got, err := hold.against(other).TryLock(t.Context()); err == nil {
				t.Errorf("%q of %q moved: %v is taken while it is held", names, keys, got)
			}
		}
		begin := time.Now()
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("%q of %q moved: Unlock %d: %v", names, keys, i, err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%q of %q moved: Unlock %d took %v", names, keys, i, took)
		}
	}
	f.closes()
	waiters.Wait()
	hold.pass(t, f.client)
	time.Sleep(30 * time.Second) // until the latches have ended
	if left := f.keysOf(f.servers[1]); len(left) > 1 {
		t.Errorf("%q of %q moved: %q are left", names, keys, left)
	}
	return 1 << len(keys)
}

// take takes the lock in the way of h, and returns the leases in the order in which they are given back.
func (h holding) take(t *testing.T, c *lock.Client) (leases []*lock.Lease) {
	if s, ok := h.kinds[0](c).(anyPermit); ok {
		if _, err := s.TrySetPermits(t.Context(), len(h.kinds)); err != nil {
			t.Fatal(err)
		}
	}
	var opts []lock.Option
	if h.owned {
		opts = append(opts, lock.As(c.NewOwner()))
	}
	for _, open := range h.kinds {
		l, err := open(c).Lock(t.Context(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	slices.Reverse(leases)
	return leases
}

// against returns a lock that nobody has while the lock of h is held.
func (h holding) against(c *lock.Client) lockable {
	first := h.kinds[0](c)
	if _, reads := first.(*lock.ReadLock); reads {
		return c.ReadWrite("mylock").Write()
	}
	return first
}

// pass takes the lock once it is free, and gives it back.
func (h holding) pass(t *testing.T, c *lock.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := h.kinds[0](c).Lock(ctx)
	if err != nil {
		t.Error(err)
	} else if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// keysOf returns the keys of mylock on a server.
func (f *fleet) keysOf(s *fakeredis.Server) (keys []string) {
	for _, key := range s.Keys() {
		if strings.Contains(key.Name, "mylock") {
			keys = append(keys, key.Name)
		}
	}
	return keys
}

// closes moves the rest of the slot of mylock, and ends the migration.
func (f *fleet) closes() {
	f.servers[0].MoveKeys(1711, f.servers[1], 1000)
	for _, s := range []*fakeredis.Server{f.servers[1], f.servers[0]} {
		s.Do("CLUSTER", "SETSLOT", "1711", "NODE", f.servers[1].Cluster().ID)
	}
}

// The release of a reader's hold leaves its other hold the whole lease, also where the key of that lease cannot be reached from the lock:
// another reader that leaves later does not end it.
func TestOuterReadWithKeysOnBothNodes(t *testing.T) {
	inFleet(t, lock.Config{Lease: splitLease}, func(t *testing.T, f *fleet) {
		other, err := lock.New(f.cluster, lock.Config{Lease: splitLease})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		owner := lock.As(f.client.NewOwner())
		var leases [3]*lock.Lease
		for i, take := range []func() (*lock.Lease, error){
			func() (*lock.Lease, error) { return f.client.ReadWrite("mylock").Read().Lock(t.Context(), owner) },
			func() (*lock.Lease, error) {
				return f.client.ReadWrite("mylock").Read().Lock(t.Context(), owner, lock.For(time.Minute))
			},
			func() (*lock.Lease, error) { return other.ReadWrite("mylock").Read().Lock(t.Context()) },
		} {
			if leases[i], err = take(); err != nil {
				t.Fatal(err)
			}
		}
		f.opens(t, 0)
		f.servers[0].MoveKey("mylock", f.servers[1])
		if err := leases[0].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		f.closes()
		if err := leases[2].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * splitLease)
		if err := leases[1].Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := leases[1].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An Unlock waits for no key of an earlier Unlock, which has stayed on the node that the slot leaves.
func TestUnlockOfABusyLockWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		for i := range 4 {
			lease, err := f.client.Reentrant("mylock").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Unlock %d took %v", i, took)
			}
			if i == 1 {
				f.opens(t, 0)
			}
		}
	})
}

// A lock is freed by force while its queue is on another node.
func TestForceUnlockWithKeysOnBothNodes(t *testing.T) {
	for _, moved := range []string{"mylock", "redisson_lock_queue:{mylock}"} {
		inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
			fair := f.client.Fair("mylock")
			lease, err := fair.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = fair.Lock(ctx) }()
			time.Sleep(time.Second)
			f.opens(t, 0)
			f.servers[0].MoveKey(moved, f.servers[1])
			begin := time.Now()
			if forced, err := fair.ForceUnlock(t.Context()); !forced || err != nil || lease.Err() == nil || time.Since(begin) > time.Second {
				t.Errorf("ForceUnlock = %v, %v after %v, and the lease has %v", forced, err, time.Since(begin), lease.Err())
			}
			cancel()
		})
	}
}

// List and Inspect find the locks of a slot that migrates, on either node, and keys that are no locks do not stop them.
func TestListWhileSlotMigrates(t *testing.T) {
	for name, hold := range holdings() {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, moved %v", name, moved), func(t *testing.T) {
				inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) { f.listWhileMigrating(t, hold, moved) })
			})
		}
	}
}

func (f *fleet) listWhileMigrating(t *testing.T, hold holding, moved bool) {
	hold.take(t, f.client)
	f.servers[0].Do("SET", "{mylock}other", "data")
	f.servers[0].Do("RPUSH", "{mylock}list", "data")
	before := f.listed(t)
	keys := len(f.servers[0].Keys())
	if !moved {
		keys = 0
	}
	f.opens(t, keys)
	begin := time.Now()
	if after := f.listed(t); len(before) != 1 || !slices.Equal(after, before) {
		t.Errorf("List finds %q before, and %q now", before, after)
	}
	seen, err := f.client.Inspect(t.Context(), "mylock")
	if err != nil || len(seen.Info.Holders) == 0 {
		t.Fatalf("Inspect = %+v, %v", seen, err)
	}
	if forced, err := f.client.ForceUnlockOwner(t.Context(), "mylock", seen.Info.Holders[0].Owner); err != nil || !forced {
		if seen.Shape != lock.ShapeFasterMulti { // is refused
			t.Errorf("ForceUnlockOwner = %v, %v", forced, err)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("all that took %v", took)
	}
}

// listed returns the locks that List finds, with shapes and numbers of holders.
func (f *fleet) listed(t *testing.T) (found []string) {
	t.Helper()
	for l, err := range f.client.List(t.Context(), "") {
		if err != nil {
			t.Errorf("List: %v", err)
			continue
		}
		found = append(found, fmt.Sprintf("%s %s %d", l.Name, l.Shape, len(l.Info.Holders)))
	}
	return found
}

// A lock whose keys are on two nodes ends List, with an error that names it.
func TestListWithKeysOnBothNodes(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		if _, err := f.client.Fenced("mylock").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.opens(t, 0)
		f.servers[0].MoveKey("mylock", f.servers[1])
		for l, err := range f.client.List(t.Context(), "") {
			if err == nil || !strings.Contains(err.Error(), "mylock") || !strings.Contains(err.Error(), "on two servers") {
				t.Errorf("List yields %v, %v", l, err)
			}
		}
	})
}
