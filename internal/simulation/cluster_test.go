package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// fleet is a cluster without faults, and a client of it.
type fleet struct {
	*shards
	cluster *cluster.Cluster
	client  *lock.Client
}

// inFleet runs fn in virtual time with a cluster.
func inFleet(t *testing.T, cfg lock.Config, fn func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{history: &history{start: time.Now()}}
		f := &fleet{shards: newShards(w)}
		for _, s := range f.servers {
			interpreter := newInterpreter(func(string, *fakeredis.Call, any) {})
			s.Interpret(interpreter.compile)
			defer interpreter.close()
			defer s.Close()
		}
		time.Sleep(shardWarmUp)
		dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return f.dial(ctx, addr) }
		var err error
		if f.cluster, err = cluster.Open(t.Context(), cluster.Config{Addrs: f.addrs, Node: conn.Config{Dial: dial}}); err != nil {
			t.Fatal(err)
		}
		defer f.cluster.Close()
		if f.client, err = lock.New(f.cluster, cfg); err != nil {
			t.Fatal(err)
		}
		defer f.client.Close()
		fn(t, f)
	})
}

// A node that answers an error when a slot migrates is understood: it says what is wrong.
func TestErrorWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		f.servers[0].Do("SET", "mylock", "somebody") // without the latch, a request for both is refused
		f.servers[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", f.servers[0].Cluster().ID)
		f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", f.servers[1].Cluster().ID)
		for _, s := range f.servers[:2] {
			s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if strings.HasPrefix(cmd.Name, "EVAL") && cmd.Args[2] == "1" {
					return fakeredis.Reply("-NOPERM no scripts today\r\n")
				}
				return fakeredis.Run()
			})
		}
		lease, err := f.client.Plain("mylock").TryLock(t.Context())
		if !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("TryLock = %v, %v, want NOPERM", lease, err)
		}
	})
}

// A waiter in the queue of a fair lock needs a key that nobody can make while the slot is leaving: it waits, and gets the lock later.
func TestFairWaiterWhileSlotLeaves(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		lease, err := f.client.Fair("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.servers[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", f.servers[0].Cluster().ID)
		f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", f.servers[1].Cluster().ID)
		time.AfterFunc(2*time.Second, func() { f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "STABLE") })
		time.AfterFunc(4*time.Second, func() { _ = lease.Unlock(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		next, err := f.client.Fair("mylock").Lock(ctx, lock.As(f.client.NewOwner()))
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While its slot leaves, a release runs without a latch. Its repeat, after the slot has stayed, releases no outer hold.
func TestRepeatOfAReleaseWithoutALatch(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		owner := f.client.NewOwner()
		outer, err := f.client.Reentrant("mylock").Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		inner, err := f.client.Reentrant("mylock").Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		f.servers[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", f.servers[0].Cluster().ID)
		f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", f.servers[1].Cluster().ID)
		answered := true
		f.servers[0].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if answered && cmd.Name == "EVAL" && cmd.Args[2] == "1" && strings.Contains(cmd.Args[1], "release") {
				answered = false
				time.AfterFunc(time.Millisecond, func() { f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "STABLE") })
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		if err := inner.Unlock(t.Context()); err != nil && !errors.Is(err, lock.ErrUncertain) {
			t.Errorf("Unlock of the inner hold = %v", err)
		}
		time.Sleep(5 * time.Second)
		if n := f.servers[0].Do("HGET", "mylock", outer.Owner()); answered || n != "1" {
			t.Errorf("the owner has %v holds, want 1; the reply was lost: %v", n, !answered)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	})
}

// A former master has confirmed the release of a hold, and the next one counts it while the slot migrates. It releases the next hold all the same.
func TestReleaseBesideMoreHoldsThanKnown(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		job, owner := f.client.Reentrant("mylock"), f.client.NewOwner()
		var holds []*lock.Lease
		for range 3 {
			hold, err := job.Lock(t.Context(), lock.As(owner))
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, hold)
		}
		if err := holds[2].Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.servers[0].Do("HINCRBY", "mylock", owner.String(), "1")
		f.servers[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", f.servers[0].Cluster().ID)
		f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", f.servers[1].Cluster().ID)
		if err := holds[1].Unlock(t.Context()); err != nil {
			t.Errorf("Unlock of the inner hold = %v", err)
		}
		if err := holds[0].Err(); err != nil {
			t.Errorf("Err of the outer hold = %v", err)
		}
		if n := f.servers[0].Do("HGET", "mylock", owner.String()); n != "2" {
			t.Errorf("the owner has %v holds, want 2", n)
		}
		if err := holds[0].Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "STABLE")
	})
}

// A master that has been replaced and does not know is not asked about itself.
func TestReplacedMasterIsNoWitness(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		before, err := f.cluster.Succession(t.Context(), "mylock", time.Now())
		if err != nil || before.Addr != f.addrs[0] || before.Replicas != 1 {
			t.Fatalf("Succession = %+v, %v", before, err)
		}
		for _, s := range f.servers[1:] {
			s.Stall(true)
		}
		time.Sleep(time.Second)
		if s, err := f.cluster.Succession(t.Context(), "mylock", time.Now()); err == nil {
			t.Errorf("Succession = %+v, and nobody but that server has been asked", s)
		}
	})
}

// An address in cluster.Config.Addrs may lead to a replaced master that its cluster announces at another address.
func TestReplacedMasterIsNoWitnessUnderAnotherName(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		const name = "redis.example:6379"
		dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
			if addr == name {
				addr = f.addrs[0]
			}
			return f.dial(ctx, addr)
		}
		c, err := cluster.Open(t.Context(), cluster.Config{Addrs: []string{name}, Node: conn.Config{Dial: dial}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if s, err := c.Succession(t.Context(), "mylock", time.Now()); err != nil || s.Addr != f.addrs[0] || s.Replicas != 1 {
			t.Fatalf("Succession = %+v, %v", s, err)
		}
		for _, s := range f.servers[1:] {
			s.Stall(true)
		}
		time.Sleep(time.Second)
		if s, err := c.Succession(t.Context(), "mylock", time.Now()); err == nil {
			t.Errorf("Succession = %+v, and nobody but that server has been asked", s)
		}
	})
}

// opens opens the slot of mylock, and moves some of its keys.
func (f *fleet) opens(t *testing.T, keys int) {
	t.Helper()
	f.servers[1].Do("CLUSTER", "SETSLOT", "1711", "IMPORTING", f.servers[0].Cluster().ID)
	f.servers[0].Do("CLUSTER", "SETSLOT", "1711", "MIGRATING", f.servers[1].Cluster().ID)
	if moved, ok := f.servers[0].MoveKeys(1711, f.servers[1], keys); !ok || len(moved) != keys {
		t.Fatalf("moved %q", moved)
	}
}

// Locks of one slot, some of which have moved, are renewed for as long as the slot is open.
func TestRenewalsWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{Lease: 3 * time.Second}, func(t *testing.T, f *fleet) {
		var leases []*lock.Lease
		for _, name := range []string{"mylock", "{mylock}2", "{mylock}3", "{mylock}4"} {
			lease, err := f.client.Reentrant(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		f.opens(t, 2)
		time.Sleep(10 * time.Second)
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Error(err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A reader's leases are renewed for as long as the slot of the lock is open, on either node, although a hold of the reader has ended that is
// not released: its key is on neither node.
func TestReaderWithAnEndedHoldWhileSlotMigrates(t *testing.T) {
	const lease = 3 * time.Second
	for name, moves := range map[string]bool{"stays": false, "moves": true} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, lock.Config{Lease: lease}, func(t *testing.T, f *fleet) {
				owner := lock.As(f.client.NewOwner())
				read := f.client.ReadWrite("mylock").Read()
				ended, err := read.Lock(t.Context(), owner, lock.For(lease/6)) // before the first renewal
				if err != nil {
					t.Fatal(err)
				}
				held, err := read.Lock(t.Context(), owner)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(lease / 4)
				if ended.Err() == nil {
					t.Fatal("the fixed lease has not ended")
				}
				keys := 0
				if moves {
					keys = len(f.servers[0].Keys())
				}
				f.opens(t, keys)
				time.Sleep(3*lease + lease/2)
				if err := held.Check(t.Context()); err != nil {
					t.Error(err)
				}
				if err := held.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A waiter of another process is woken while the slot of its lock is open and the lock has moved: it listens where the slot still is.
func TestWakeUpWhileSlotMigrates(t *testing.T) {
	for name, of := range map[string]func(c *lock.Client) lockable{
		"reentrant": func(c *lock.Client) lockable { return c.Reentrant("mylock") },
		"fair":      func(c *lock.Client) lockable { return c.Fair("mylock") },
	} {
		t.Run(name, func(t *testing.T) { inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) { f.wakesUp(t, of) }) })
	}
}

func (f *fleet) wakesUp(t *testing.T, of func(c *lock.Client) lockable) {
	other, err := lock.New(f.cluster, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lease, err := of(f.client).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan time.Time, 1)
	time.AfterFunc(5*time.Second, func() {
		f.opens(t, len(f.servers[0].Keys()))
		if err := lease.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		free <- time.Now()
	})
	next, err := of(other).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSoon(t, next, time.Second, free, "it was free")
}

// wantSoon checks that a waiter has got a lease at most limit after the time that comes over since, and releases the lease.
func wantSoon(t *testing.T, lease *lock.Lease, limit time.Duration, since <-chan time.Time, what string) {
	t.Helper()
	if took := time.Since(<-since); took > limit {
		t.Errorf("the waiter has the lock %v after %s", took, what)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A waiter of a fair lock, which is freed while its queue is on another node, looks soon after the end of the migration, also where the end of a
// subscription does not tell it of that.
func TestFairWaiterAfterAReleaseWithoutTheQueue(t *testing.T) {
	inFleet(t, lock.Config{Publish: lock.PublishPlain}, func(t *testing.T, f *fleet) {
		other, err := lock.New(f.cluster, lock.Config{Publish: lock.PublishPlain})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		lease, err := f.client.Fair("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		together := make(chan time.Time, 1)
		time.AfterFunc(2*time.Second, func() {
			f.opens(t, 0)
			f.servers[0].MoveKey("mylock", f.servers[1])
			if err := lease.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			f.closes()
			together <- time.Now()
		})
		next, err := other.Fair("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSoon(t, next, 2*time.Second, together, "the end of the migration")
	})
}

// A waiter behind another one, who does not come for the free lock, asks the server to pass over it. While the slot is open the server cannot,
// and the waiter looks again soon.
func TestFairWaiterBehindAnAbsentOneWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		const absent, queue, timeouts = "00000000-0000-0000-0000-000000000001:1", "redisson_lock_queue:{mylock}", "redisson_lock_timeout:{mylock}"
		f.servers[0].Do("RPUSH", queue, absent)
		f.servers[0].Do("ZADD", timeouts, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()), absent)
		f.opens(t, 2)
		left := make(chan time.Time, 1)
		time.AfterFunc(time.Second/2, func() {
			f.servers[1].Do("ASKING")
			f.servers[1].Do("LREM", queue, "0", absent)
			f.servers[1].Do("ZREM", timeouts, absent)
			left <- time.Now()
		})
		lease, err := f.client.Fair("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSoon(t, lease, time.Second, left, "it was the first")
	})
}

// Waiters who leave while the slot of their lock migrates leave no place in the line: at the end of the migration nobody's turn goes to
// them.
func TestLeavingTheLineWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		lease, err := f.client.Reentrant("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		short, leave := context.WithCancel(t.Context())
		took := make(chan time.Duration, 1)
		var free time.Time
		var wg sync.WaitGroup
		for i := range 3 {
			c, err := lock.New(f.cluster, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := t.Context()
			if i < 2 {
				ctx = short
			}
			wg.Go(func() {
				next, err := c.Reentrant("mylock").Lock(ctx)
				if i < 2 {
					return
				}
				took <- time.Since(free)
				if err != nil {
					t.Error(err)
				} else if err := next.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		f.opens(t, len(f.servers[0].Keys()))
		leave()
		time.Sleep(100 * time.Millisecond)
		f.closes()
		time.Sleep(100 * time.Millisecond)
		free = time.Now()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if d := <-took; d > time.Second {
			t.Errorf("the waiter has the lock %v after it was free", d)
		}
	})
}

// A replaced master that goes on after a stop runs all waiting renewals of a lock at once, on several connections. None counts, as
// the new master has none.
func TestRenewalsAtAReplacedMaster(t *testing.T) {
	for _, age := range []time.Duration{0, 900 * time.Millisecond, 1400 * time.Millisecond} {
		inFleet(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, f *fleet) {
			var wg sync.WaitGroup
			for i := range 4 { // connections for later
				wg.Go(func() {
					if _, err := f.client.Reentrant(fmt.Sprint("{mylock}", i)).Lock(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			lease, err := f.client.Reentrant("mylock").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(age)
			master, successor := f.servers[0], f.replicaOf(newDice(1, "replica"), 0)
			master.Stall(true)
			for f.servers[successor].Replication().Master != "" {
				time.Sleep(10 * time.Millisecond)
			}
			master.Stall(false)
			for range 5000 {
				time.Sleep(time.Millisecond)
				left, _ := f.servers[successor].Do("PTTL", "mylock").(int64)
				if until := time.Until(lease.ValidUntil()); lease.Err() == nil && until > time.Duration(left)*time.Millisecond {
					t.Fatalf("age %v: the lease is good for %v, and at the new master for %d ms", age, until, left)
				}
			}
		})
	}
}

// A forced unlock is told at once beside a server that hangs.
func TestForceUnlockBesideAServerThatHangs(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		names := beside(20)
		for _, name := range names {
			f.lock(t, name)
		}
		f.servers[1].Stall(true)
		defer f.servers[1].Stall(false)
		for _, name := range names {
			begin := time.Now()
			if _, err := f.client.Reentrant(name).ForceUnlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Fatalf("ForceUnlock of %s took %v", name, took)
			}
		}
	})
}

// The release of one of three read holds of an Owner is refused halfway for lack of a right, and the refusal is lost: the other two stay.
func TestReadReleaseWithoutTheAnswerOfAPart(t *testing.T) {
	for _, right := range []string{"hget", "hlen", "hgetall"} {
		t.Run(right, func(t *testing.T) {
			inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
				owner := lock.As(f.client.NewOwner())
				var leases []*lock.Lease
				for range 4 {
					l, err := f.client.ReadWrite("mylock").Read().Lock(t.Context(), owner)
					if err != nil {
						t.Fatal(err)
					}
					leases = append(leases, l)
				}
				if err := leases[3].Unlock(t.Context()); err != nil { // the server has the script afterwards
					t.Fatal(err)
				}
				n := 0
				for _, s := range f.servers {
					s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if !strings.HasPrefix(cmd.Name, "EVAL") || !slices.Contains(cmd.Args, "20000") { // the life of a latch
							return fakeredis.Run()
						}
						if n++; n == 1 {
							s.Deny(right)
							return fakeredis.RunThenClose()
						}
						s.Deny()
						return fakeredis.Run()
					})
				}
				err := leases[2].Unlock(t.Context())
				time.Sleep(time.Second)
				if n < 2 {
					t.Fatal("no repeat")
				}
				for i, l := range leases[:2] {
					if bad := l.Unlock(t.Context()); bad != nil {
						t.Errorf("Unlock() = %v; then of another hold, %d: %v", err, i, bad)
					}
				}
			})
		})
	}
}
