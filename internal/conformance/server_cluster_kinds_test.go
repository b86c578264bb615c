package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// All that a kind has on the server is in one slot, whatever name it has; and a name of which that is not true is refused.
func TestKindsInACluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		locks, _ := locksOf(t, c, lock.Config{})
		for i, name := range []string{"job", "a b", "{tag}x", "x{tag}", "x{tag}{other}", "{a{b}c", "{tag}", "ü\x00\xff"} {
			for kind, use := range usesOf(locks, fmt.Sprint(name, i)) {
				if err := use(t.Context()); err != nil {
					t.Errorf("%s %q: %v", kind, name, err)
				}
			}
		}
		if err := useLatch(t.Context(), locks.CountDownLatch("latch")); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"{}x", "{", "x}", "x{y"} {
			for kind, use := range usesOf(locks, name) {
				if err := use(t.Context()); !errors.Is(err, lock.ErrInvalid) {
					t.Errorf("%s %q: %v, want that the name is refused", kind, name, err)
				}
			}
		}
	})
}

// usesOf takes, renews by taking again or looks at, and gives back one of each kind.
func usesOf(locks *lock.Client, name string) map[string]func(context.Context) error {
	uses := map[string]func(context.Context) error{}
	for kind, l := range map[string]locker{
		"reentrant": locks.Reentrant("re:" + name), "fair": locks.Fair("fair:" + name), "fenced": locks.Fenced("fenced:" + name),
		"write": locks.ReadWrite("rw:" + name).Write(), "read": locks.ReadWrite("rw:" + name).Read(),
		"nonreentrant": locks.NonReentrant("no:" + name), "spin": locks.Spin("spin:"+name, lock.Backoff{}), "plain": locks.Plain("plain:" + name),
	} {
		uses[kind] = func(ctx context.Context) error {
			lease, err := l.TryLock(ctx)
			if err != nil {
				return err
			}
			return errors.Join(lease.Check(ctx), lease.Unlock(ctx))
		}
	}
	semaphore, permits := locks.Semaphore("sem:"+name), locks.PermitSemaphore("permits:"+name)
	uses["semaphore"] = func(ctx context.Context) error {
		if _, err := semaphore.TrySetPermits(ctx, 3); err != nil {
			return err
		}
		return errors.Join(semaphore.TryAcquire(ctx, 2), semaphore.Release(ctx, 2))
	}
	uses["permits"] = func(ctx context.Context) error {
		if _, err := permits.TrySetPermits(ctx, 3); err != nil {
			return err
		}
		lease, err := permits.TryAcquireMany(ctx, 2)
		if err != nil {
			return err
		}
		return errors.Join(lease.Check(ctx), lease.Unlock(ctx))
	}
	return uses
}

func useLatch(ctx context.Context, l *lock.CountDownLatch) error {
	if _, err := l.TrySetCount(ctx, 1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return errors.Join(l.CountDown(ctx), l.Wait(ctx))
}

// A release is told on the channels that Redisson uses, by whichever command is configured, and that wakes who waits.
func TestPublishingInACluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		sharded := c.Binary().AtLeast(7, 0)
		for mode, onShard := range map[lock.Publishing]bool{
			lock.PublishAuto: sharded, lock.PublishPlain: false, lock.PublishSharded: true,
		} {
			if onShard && !sharded {
				continue
			}
			cfg := lock.Config{Publish: mode, Lease: 10 * time.Second, RenewEvery: 200 * time.Millisecond}
			here, _ := locksOf(t, c, cfg)
			there, _ := locksOf(t, c, cfg)
			name := fmt.Sprint("told", mode)
			told, want := hear(t, c, "redisson_lock__channel:{"+name+"}", onShard), "message"
			if onShard {
				want = "smessage"
			}
			handOver(t, here.Reentrant(name), there.Reentrant(name), there)
			select {
			case kind := <-told:
				if kind != want {
					t.Errorf("mode %d: %s, want %s", mode, kind, want)
				}
			case <-time.After(patience):
				t.Errorf("mode %d: nothing was told", mode)
			}
		}
	})
}

// hear listens to a channel on the owner of its slot, and sends what kinds of messages come.
func hear(t *testing.T, c *redistest.Cluster, channel string, shard bool) <-chan string {
	t.Helper()
	cfg := c.Config()
	cfg.Addr = c.Owner(slotOf(channel)).Addr()
	stream, err := conn.DialStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	command := "SUBSCRIBE"
	if shard {
		command = "SSUBSCRIBE"
	}
	if err := stream.Write(t.Context(), resp.Cmd(command, channel)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Read(); err != nil {
		t.Fatal(err)
	}
	told, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		for {
			v, err := stream.Read()
			if err != nil {
				return
			}
			kind, _ := v.At(0).Text()
			told <- kind
		}
	}()
	t.Cleanup(func() {
		stream.Close()
		<-done
	})
	return told
}
