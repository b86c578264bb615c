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

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

// refuses has all servers refuse scripts for a while, as the nodes of a migrating slot do that have not all keys.
func (f *fleet) refuses(length time.Duration) {
	until := time.Now().Add(length)
	for _, s := range f.servers {
		s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") && time.Now().Before(until) {
				return fakeredis.Reply("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
			}
			return fakeredis.Run()
		})
	}
}

// A lease counts from the attempt that was granted, and not from attempts that the nodes of a migrating slot have refused before.
func TestLeaseCountsFromTheLastAttempt(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, f *fleet) (*lock.Lease, error){
		"TryLock": func(t *testing.T, f *fleet) (*lock.Lease, error) {
			f.refuses(2 * time.Second)
			return f.client.Reentrant("mylock").TryLock(t.Context())
		},
		"Downgrade": func(t *testing.T, f *fleet) (*lock.Lease, error) {
			write, err := f.client.ReadWrite("mylock").Write().Lock(t.Context())
			if err != nil {
				return nil, err
			}
			f.refuses(2 * time.Second)
			return write.Downgrade(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, f *fleet) {
				begin := time.Now()
				lease, err := take(t, f)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took < 2*time.Second {
					t.Fatalf("granted after %v, while scripts were refused", took)
				}
				if left := time.Until(lease.ValidUntil()); left < 5*time.Second {
					t.Errorf("%v are left of a lease of 6s", left)
				}
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// late holds back the next n requests that the target of a migrating slot gets with the lock as their only key: each arrives too
// late.
func (f *fleet) late(n int) (left func() int) {
	var mu sync.Mutex
	f.servers[1].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || !strings.HasPrefix(cmd.Name, "EVAL") || cmd.Args[2] != "1" || len(cmd.Args) < 6 {
			return fakeredis.Run()
		}
		n--
		return fakeredis.Delay(1200*time.Millisecond, fakeredis.Run())
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// Requests that reach the nodes of a migrating slot too late are sent again, and callers get no error.
func TestLateWhileSlotMigrates(t *testing.T) {
	const lease = 3 * time.Second
	for name, take := range map[string]func(context.Context, *lock.Client) (*lock.Lease, error){
		"Lock": func(ctx context.Context, c *lock.Client) (*lock.Lease, error) { return c.Reentrant("mylock").Lock(ctx) },
		"TryLock": func(ctx context.Context, c *lock.Client) (*lock.Lease, error) {
			return c.Reentrant("mylock").TryLock(ctx)
		},
		"Owner": func(ctx context.Context, c *lock.Client) (*lock.Lease, error) {
			return c.Reentrant("mylock").Lock(ctx, lock.As(c.NewOwner()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, lock.Config{Lease: lease}, func(t *testing.T, f *fleet) {
				f.opens(t, 0)
				left := f.late(6)
				got, err := take(t.Context(), f.client)
				if err != nil {
					t.Fatal(err)
				}
				if n := left(); n != 0 {
					t.Fatalf("%d requests fewer than expected arrived late", n)
				}
				left = f.late(2)
				if err := got.Unlock(t.Context()); err != nil {
					t.Error("Unlock =", err)
				}
				if n := left(); n != 0 {
					t.Errorf("%d requests fewer than expected arrived late", n)
				}
			})
		})
	}
}

// Lock waits for as long as the nodes of a migrating slot refuse its keys, as for a holder: the server answers.
func TestLockWhileKeysAreRefused(t *testing.T) {
	inFleet(t, lock.Config{Lease: 3 * time.Second}, func(t *testing.T, f *fleet) {
		f.refuses(10 * time.Second)
		lease, err := f.client.Reentrant("mylock").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Waiters for a semaphore or a latch are woken while its slot is open and its keys have moved: they listen where the slot still is.
func TestSynchronizersWakeUpWhileSlotMigrates(t *testing.T) {
	type course struct {
		before, wait, free func(ctx context.Context, c *lock.Client) error
	}
	count := course{
		func(ctx context.Context, c *lock.Client) error {
			_, err := c.CountDownLatch("mylock").TrySetCount(ctx, 1)
			return err
		},
		func(ctx context.Context, c *lock.Client) error { return c.CountDownLatch("mylock").Wait(ctx) },
		func(ctx context.Context, c *lock.Client) error { return c.CountDownLatch("mylock").CountDown(ctx) },
	}
	deleted := count
	deleted.free = func(ctx context.Context, c *lock.Client) error {
		_, err := c.CountDownLatch("mylock").Delete(ctx)
		return err
	}
	permits := course{
		func(ctx context.Context, c *lock.Client) error {
			_, err := c.PermitSemaphore("mylock").TrySetPermits(ctx, 0)
			return err
		},
		func(ctx context.Context, c *lock.Client) error {
			l, err := c.PermitSemaphore("mylock").Acquire(ctx)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		},
		func(ctx context.Context, c *lock.Client) error { return c.PermitSemaphore("mylock").AddPermits(ctx, 1) },
	}
	for name, k := range map[string]course{
		"Semaphore": {
			func(ctx context.Context, c *lock.Client) error {
				_, err := c.Semaphore("mylock").TrySetPermits(ctx, 0)
				return err
			},
			func(ctx context.Context, c *lock.Client) error { return c.Semaphore("mylock").Acquire(ctx, 2) },
			func(ctx context.Context, c *lock.Client) error { return c.Semaphore("mylock").Release(ctx, 2) },
		},
		"PermitSemaphore": permits, "CountDownLatch": count, "CountDownLatch deleted": deleted,
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
				other, err := lock.New(f.cluster, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				if err := k.before(t.Context(), f.client); err != nil {
					t.Fatal(err)
				}
				free := make(chan time.Time, 1)
				time.AfterFunc(time.Second/2, func() {
					f.opens(t, len(f.servers[0].Keys()))
					if err := k.free(context.Background(), f.client); err != nil {
						t.Error(err)
					}
					free <- time.Now()
				})
				if err := k.wait(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(<-free); took > 200*time.Millisecond {
					t.Errorf("the waiter goes on %v later", took)
				}
			})
		})
	}
}

// The release of a lock whose latch stays behind when the lock moves to another node is as quick as any other: it takes another latch.
func TestReleaseWhileItsLatchIsOnAnotherNode(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		l := f.client.Reentrant("mylock")
		first, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Unlock(t.Context()); err != nil { // which leaves its latch for the next release
			t.Fatal(err)
		}
		second, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if keys := f.keysOf(f.servers[0]); len(keys) != 2 {
			t.Fatalf("keys %q, want the lock and a latch", keys)
		}
		f.opens(t, 0)
		f.servers[0].MoveKey("mylock", f.servers[1])
		begin := time.Now()
		if err := second.Unlock(t.Context()); err != nil {
			t.Error("Unlock =", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Unlock took %v", took)
		}
		if keys := f.keysOf(f.servers[1]); slices.Contains(keys, "mylock") {
			t.Error("the lock is still taken")
		}
	})
}

// Listeners at the source of a migrating slot get the message of a release that Redisson sends for the kind.
func TestMessageAtTheSourceOfAMigratingSlot(t *testing.T) {
	for _, test := range []struct {
		name string
		lock func(c *lock.Client) lockable
		want string
	}{
		{"reentrant", func(c *lock.Client) lockable { return c.Reentrant("mylock") }, "0"},
		{"read", func(c *lock.Client) lockable { return c.ReadWrite("mylock").Read() }, "1"},
		{"write", func(c *lock.Client) lockable { return c.ReadWrite("mylock").Write() }, "1"},
		{"permit", func(c *lock.Client) lockable { return anyPermit{c.PermitSemaphore("mylock")} }, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
				if test.name == "permit" {
					if _, err := f.client.PermitSemaphore("mylock").TrySetPermits(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
				lease, err := test.lock(f.client).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				f.opens(t, len(f.keysOf(f.servers[0])))
				f.servers[0].ClearLog()
				if err := lease.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var messages []string
				for _, cmd := range f.servers[0].Log() {
					if cmd.Name == "SPUBLISH" {
						messages = append(messages, cmd.Args[2])
					}
				}
				if !slices.Equal(messages, []string{test.want}) {
					t.Errorf("messages %q, want %q once", messages, test.want)
				}
			})
		})
	}
}

// withAndWithoutAcks runs fn with a cluster, for a client that waits for replicas and for one that does not.
func withAndWithoutAcks(t *testing.T, cfg lock.Config, fn func(t *testing.T, f *fleet)) {
	for name, acks := range map[string]lock.Acks{"acknowledged": lock.AcksAuto, "not acknowledged": lock.AcksOff} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Acks = acks
			inFleet(t, cfg, fn)
		})
	}
}

// lock takes a lock.
func (f *fleet) lock(t *testing.T, name string) *lock.Lease {
	t.Helper()
	lease, err := f.client.Reentrant(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// beside returns n names of locks on the first server, in slots that stay there.
func beside(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("beside ", i); cluster.Slot(name) < 1000 {
			names = append(names, name)
		}
	}
	return names
}

// A lock that has moved is renewed while its slot is open, beside locks of the slot's server, of which one is due at any time.
func TestRenewalOfAMovedLockBesideOthers(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{Lease: 3 * time.Second}, func(t *testing.T, f *fleet) {
		lease := f.lock(t, "mylock")
		f.opens(t, 1)
		var wg sync.WaitGroup
		for _, name := range beside(500) {
			other := f.lock(t, name)
			wg.Go(func() {
				time.Sleep(1500 * time.Millisecond)
				if err := other.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		if n := f.client.Stats().RenewalErrors; n > 0 {
			t.Errorf("%d renewals have failed", n)
		}
	})
}

// The server that a slot moves to hangs. That costs the locks of the slot, and no lock on the server that has the slot.
func TestServerThatSlotMovesToHangs(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{RenewBatch: 5}, func(t *testing.T, f *fleet) {
		names := beside(250)
		var moved, others []*lock.Lease
		for i := range 50 {
			moved = append(moved, f.lock(t, fmt.Sprint("{mylock}", i)))
			for _, name := range names[5*i:][:5] {
				others = append(others, f.lock(t, name))
			}
			time.Sleep(200 * time.Millisecond)
		}
		f.opens(t, 50)
		for _, s := range []*fakeredis.Server{f.servers[1], f.servers[4]} { // and its replica
			s.Stall(true)
			defer s.Stall(false)
		}
		time.Sleep(50 * time.Second)
		for _, lease := range moved {
			if lease.Err() == nil {
				t.Fatalf("%s is held at a server that hangs", lease.Name())
			}
		}
		for _, lease := range others {
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A server that does not serve one of its slots costs the locks of the slot, and no other.
func TestSlotThatIsNotServed(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{RenewBatch: 5}, func(t *testing.T, f *fleet) {
		names := beside(250)
		var others []*lock.Lease
		for i := range 50 {
			f.lock(t, fmt.Sprint("{mylock}", i))
			for _, name := range names[5*i:][:5] {
				others = append(others, f.lock(t, name))
			}
			time.Sleep(200 * time.Millisecond)
		}
		f.servers[0].Do("CLUSTER", "DELSLOTS", "1711")
		time.Sleep(50 * time.Second)
		for _, lease := range others {
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The first reader in the line is called, and then the lock moves. The others hear from the first that they may come in.
func TestReadersBehindTheFirstWhileSlotMigrates(t *testing.T) {
	inFleet(t, lock.Config{}, func(t *testing.T, f *fleet) {
		write, err := f.client.ReadWrite("mylock").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		free := make(chan struct{})
		for range 5 {
			c, err := lock.New(f.cluster, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			readers.Go(func() {
				read, err := c.ReadWrite("mylock").Read().Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				<-free
				if err := read.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		if err := write.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		f.servers[0].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") {
				return fakeredis.Delay(50*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		f.opens(t, len(f.servers[0].Keys()))
		time.Sleep(3 * time.Second)
		if info, err := f.client.ReadWrite("mylock").Read().Info(t.Context()); err != nil || len(info.Holders) != 5 {
			t.Errorf("readers %v, %v, want 5", info.Holders, err)
		}
		close(free)
		readers.Wait()
	})
}

// A writer that becomes a reader while its lock is on the target node lets the waiting readers in.
func TestDowngradeWhileSlotMigrates(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{}, func(t *testing.T, f *fleet) {
		other, err := lock.New(f.cluster, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		write, err := f.client.ReadWrite("mylock").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shared := make(chan time.Time, 1)
		time.AfterFunc(5*time.Second, func() {
			f.opens(t, len(f.servers[0].Keys()))
			if _, err := write.Downgrade(context.Background()); err != nil {
				t.Error(err)
			}
			shared <- time.Now()
		})
		if _, err := other.ReadWrite("mylock").Read().Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(<-shared); took > time.Second {
			t.Errorf("the reader has the lock %v after it was shared", took)
		}
	})
}

// A leader is elected, and its address published, while the slot of the lock migrates, also where a former leader's record has stayed.
func TestLeaderWhileSlotMigrates(t *testing.T) {
	for _, former := range []bool{false, true} {
		withAndWithoutAcks(t, lock.Config{}, func(t *testing.T, f *fleet) {
			if former {
				f.servers[0].Do("HSET", "lockwire_leader:{mylock}", "owner", "a:1", "address", "there", "since", "1", "token", "1")
			}
			f.opens(t, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			begin := time.Now()
			if err := leader.Run(ctx, f.client, "mylock", leader.Config{Address: "here"}, func(ctx context.Context) error {
				if took := time.Since(begin); took > time.Second {
					t.Errorf("leads after %v", took)
				}
				if seen, err := leader.Observe(ctx, f.client, "mylock"); err != nil || seen.Address != "here" {
					t.Errorf("Observe = %+v, %v", seen, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Multi with a fixed lease takes locks of a server of which one is in a slot that moves.
func TestMultiWhileASlotMigrates(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{}, func(t *testing.T, f *fleet) {
		f.opens(t, 0)
		m, err := lock.NewMulti(f.client.Reentrant("mylock"), f.client.Reentrant("{mylock}2"), f.client.Reentrant(beside(1)[0]))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := m.TryLock(t.Context(), lock.For(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Extend(t.Context(), 30*time.Second); err != nil {
			t.Error(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A server has been replaced under its name: the connections lead to the former one, which redirects to the name. Renewals go to the next one.
func TestServerReplacedUnderItsName(t *testing.T) {
	withAndWithoutAcks(t, lock.Config{Lease: 3 * time.Second}, func(t *testing.T, f *fleet) {
		lease := f.lock(t, "mylock")
		former := make(map[int64]bool)
		time.Sleep(2500 * time.Millisecond)
		for _, c := range f.servers[0].Conns() {
			former[c.ID] = true
		}
		f.servers[0].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") && former[cmd.Conn] {
				return fakeredis.Reply(fmt.Sprintf("-MOVED 1711 %s\r\n", f.addrs[0]))
			}
			return fakeredis.Run()
		})
		time.Sleep(10 * time.Second)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
	})
}
