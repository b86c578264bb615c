package conformance_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// notReplicated checks what an acquire says that too few replicas have acknowledged.
func notReplicated(t *testing.T, what string, err error, name, server string, needed int) {
	t.Helper()
	e, ok := errors.AsType[*lock.NotReplicatedError](err)
	if !errors.Is(err, lock.ErrNotReplicated) || !ok {
		t.Errorf("%s = %v, want a NotReplicatedError", what, err)
		return
	}
	if e.Name != name || e.Server != server || e.Needed != needed || e.Acked >= needed || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), server) {
		t.Errorf("%s = %+v: %v", what, *e, e)
	}
}

// A replica that hangs acknowledges nothing: the acquire is undone and says why, also when the master is one that had no replica a
// moment ago. Lock goes on until the others have found the replica to have failed, and then locks are granted, and counted, without
// it. When it is back it acknowledges again.
func TestAcknowledgement(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		var logged lines
		cfg := lock.Config{AckTimeout: 300 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
		locks, nodes := locksOf(t, c, cfg)
		careless, _ := locksOf(t, c, lock.Config{Acks: lock.AcksOff})
		strict, _ := locksOf(t, c, lock.Config{Acks: 2, AckTimeout: 100 * time.Millisecond})
		eventually(t, "that the lock is had", func() bool {
			lease, err := locks.Reentrant("job").TryLock(t.Context())
			if err != nil {
				return false
			}
			unlock(t, lease)
			return true
		})
		master := c.Owner(cluster.Slot("job"))
		_, err := strict.Reentrant("job").TryLock(t.Context())
		notReplicated(t, "TryLock() that asks for two replicas where there is one", err, "job", master.Addr(), 2)
		eventually(t, "that it is undone", func() bool { return left(c) == "" })

		// A master that had no replica for a moment, and has one again, which hangs.
		replica := c.Replica(master)
		c.Promote(replica)
		master, replica = replica, master
		unlock(t, lockIn(t, locks.Reentrant("job")))
		eventually(t, "that the client has read who the master is", func() bool { // it has been sent there until then
			s, err := nodes.Succession(t.Context(), "job", time.Time{})
			return err == nil && s.Addr == master.Addr()
		})
		bare := locks.Stats().Unacknowledged
		replica.Pause()
		owner := locks.NewOwner()
		for _, opts := range [][]lock.Option{nil, {lock.As(owner)}} {
			_, err := locks.Reentrant("job").TryLock(t.Context(), opts...)
			notReplicated(t, "TryLock() while the replica hangs", err, "job", master.Addr(), 1)
			eventually(t, "that it is undone", func() bool {
				v, err := nodes.Do(t.Context(), "EXISTS", "job")
				there, _ := v.Bool()
				return err == nil && !there
			})
		}
		if n := locks.Stats().Unacknowledged; n != bare {
			t.Errorf("%d locks were granted without acknowledgement", n-bare)
		}
		unlock(t, lockIn(t, careless.Reentrant("job2")))
		if err := locks.CountDownLatch("job3").Wait(t.Context()); err != nil {
			t.Errorf("Wait() for a count of 0, which there is nothing to acknowledge about, = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond*100)
		_, err = locks.Reentrant("job").Lock(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock() under a context that ends = %v", err)
		}
		unlock(t, lockIn(t, locks.Reentrant("job")))
		if locks.Stats().Unacknowledged == bare || !strings.Contains(logged.String(), "granted without acknowledgement") {
			t.Errorf("a lock was granted without acknowledgement: %d counted, and %q logged", locks.Stats().Unacknowledged, logged.String())
		}
		replica.Continue()
		c.Await()
		eventually(t, "that the replica acknowledges again", func() bool {
			before := locks.Stats().Unacknowledged
			lease, err := locks.Reentrant("job").TryLock(t.Context())
			if err != nil {
				return false
			}
			unlock(t, lease)
			return locks.Stats().Unacknowledged == before
		})
		eventually(t, "that nothing is left", func() bool {
			v, err := nodes.Do(t.Context(), "EXISTS", "job")
			there, _ := v.Bool()
			return err == nil && !there
		})
	})
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// opaque hides what a Server declares.
type opaque struct{ lock.Server }

// traced counts what goes through it, and tells what it wraps.
type traced struct {
	opaque
	commands, batches, streams, waits *atomic.Int64
	notComparable                     func()
}

func newTraced(s lock.Server) traced {
	return traced{opaque{s}, new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), nil}
}

func (w traced) Unwrap() lock.Server { return w.Server }

func (w traced) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	w.commands.Add(1)
	return w.Server.Send(ctx, cmd)
}

func (w traced) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	w.batches.Add(1)
	if cmds[len(cmds)-1].Name() == "WAIT" {
		w.waits.Add(1)
	}
	return w.Server.SendBatch(ctx, cmds)
}

func (w traced) Stream(ctx context.Context) (*conn.Stream, error) {
	w.streams.Add(1)
	return w.Server.Stream(ctx)
}

// A Server that hides that it is a cluster is refused. One that says what it wraps gets all that the cluster would, acknowledgement
// and wake-ups at once, and sees the commands.
func TestWrappedCluster(t *testing.T) {
	t.Parallel()
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, _ int) {
		often := lock.Config{RenewEvery: 100 * time.Millisecond}
		plain, nodes := locksOf(t, c, often)
		for _, cfg := range []lock.Config{{}, {Acks: 1}} {
			if _, err := lock.New(opaque{nodes}, cfg); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New of what hides that it is a cluster = %v", err)
			}
		}
		if _, err := lock.New(nodes, lock.Config{Standalone: true}); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("New of a cluster that is to stand alone = %v", err)
		}
		outer := newTraced(nodes)
		locks, err := lock.New(newTraced(outer), often)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		unlock(t, lockIn(t, locks.Reentrant("job")))
		if outer.waits.Load() == 0 {
			t.Error("nothing was acknowledged")
		}
		if bare := locks.Stats().Unacknowledged; bare > 0 {
			t.Errorf("%d locks were granted without acknowledgement", bare)
		}
		if outer.commands.Load() == 0 {
			t.Error("no command went through the wrapper")
		}
		for range 3 {
			handOver(t, locks.Reentrant("job"), plain.Reentrant("job"), plain)
			handOver(t, plain.Reentrant("job"), locks.Reentrant("job"), locks)
		}
		if _, err := lock.NewRedlock(lock.RedlockConfig{}, locks.Reentrant("a"), plain.Reentrant("a"), plain.Reentrant("a")); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewRedlock with a wrapped cluster = %v", err)
		}
		m, err := lock.NewMulti(locks.Reentrant("a"), plain.Reentrant("a"))
		if err != nil {
			t.Fatal(err)
		}
		lease := lockIn(t, m)
		if n := len(lease.Members()); n != 1 {
			t.Errorf("a Multi of one lock, by two clients of which one wraps its cluster, has %d members", n)
		}
		unlock(t, lease)
	})
}
