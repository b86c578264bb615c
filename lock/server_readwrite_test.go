package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

func serverLocks(t *testing.T, s *redistest.Server, cfg lock.Config) *lock.Client {
	t.Helper()
	c, err := lock.New(redistest.Open(t, s.Config()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return c
}

// A writer that turns into a reader lets in all readers of other clients, and a waiting writer that they prefer goes before those
// that come later.
func TestServerDowngradeAndPreference(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		c, other := serverLocks(t, s, preferring), serverLocks(t, s, preferring)
		write := mustWrite(t, c, lock.For(time.Hour))
		const readers = 8
		got := make(chan *lock.Lease, readers)
		for range readers {
			go func() { got <- mustRead(t, other) }()
		}
		waitFor(t, func() bool { return other.Stats().Waiting == readers })
		read := mustDowngrade(t, write)
		var in []*lock.Lease
		for range readers {
			in = append(in, <-got)
		}
		writer := make(chan *lock.Lease, 1)
		go func() { writer <- mustWrite(t, c) }()
		waitFor(t, func() bool { n, _ := s.Do("ZCARD", writersKey).Int(); return n == 1 })
		// A reader that comes within the turn of its client's readers is let in.
		waitFor(t, func() bool { return !readersInLine(s) })
		isTaken(t, other.ReadWrite("job").Read())
		for _, l := range append(in, read) {
			mustUnlock(t, l)
		}
		mustUnlock(t, <-writer)
		mustUnlock(t, mustRead(t, other))
		waitFor(t, func() bool { n, _ := s.Do("DBSIZE").Int(); return n == 0 })
	})
}

// readersInLine reports whether readers have a place or a turn in the line.
func readersInLine(s *redistest.Server) bool {
	for member := range s.Do("ZRANGE", jobLine, 0, -1).All() {
		if place, _ := member.Text(); strings.Contains(place, ":r:") {
			return true
		}
	}
	return false
}

// waitFor waits until done reports true.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !done() {
		select {
		case <-timeout:
			t.Fatal("that has not come true")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Readers and writers of several clients, some of which change from one to the other, all at once: never a writer beside
// anybody, and nothing is left behind.
func TestServerReadWriteStress(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		x := &readWriteStress{t: t}
		var wg sync.WaitGroup
		for i := range 4 {
			c := serverLocks(t, s, lock.Config{PreferWriters: i%2 == 0})
			for g := range 8 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), uint64(g)))
					for ctx.Err() == nil {
						x.turn(ctx, c, random)
					}
				})
			}
		}
		wg.Wait()
		if x.turns.Load() < 20 {
			t.Errorf("the lock was had %d times", x.turns.Load())
		}
		waitFor(t, func() bool {
			left, _ := s.Do("EXISTS", "job", writersKey).Int()
			return left == 0 && len(timeouts(s)) == 0
		})
	})
}

// timeouts are the keys of readers' leases that are left.
func timeouts(s *redistest.Server) (names []string) {
	for key := range s.Do("KEYS", "{job}:*").All() {
		name, _ := key.Text()
		names = append(names, name)
	}
	return names
}

// readWriteStress counts who is inside.
type readWriteStress struct {
	t                *testing.T
	readers, writers atomic.Int32
	turns            atomic.Int64
}

func (x *readWriteStress) turn(ctx context.Context, c *lock.Client, random *rand.Rand) {
	both, opts := c.ReadWrite("job"), []lock.Option{lock.As(c.NewOwner())}
	if random.IntN(2) == 0 {
		opts = nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(200))*time.Millisecond)
	defer cancel()
	if random.IntN(4) != 0 {
		if lease := x.got(both.Read().Lock(ctx, opts...)); lease != nil {
			x.reads(lease)
		}
		return
	}
	lease := x.got(both.Write().Lock(ctx, opts...))
	if lease == nil {
		return
	}
	if n, r := x.writers.Add(1), x.readers.Load(); n != 1 || r != 0 {
		x.t.Errorf("%d writers and %d readers", n, r)
	}
	x.turns.Add(1)
	x.writers.Add(-1)
	switch random.IntN(3) {
	case 0:
		if read := x.got(lease.Downgrade(context.WithoutCancel(ctx))); read != nil {
			x.reads(read)
		}
	case 1:
		if opts != nil {
			if read := x.got(both.Read().Lock(context.WithoutCancel(ctx), opts...)); read != nil {
				mustUnlock(x.t, lease)
				x.reads(read)
				return
			}
		}
		mustUnlock(x.t, lease)
	default:
		mustUnlock(x.t, lease)
	}
}

func (x *readWriteStress) reads(lease *lock.Lease) {
	x.readers.Add(1)
	if n := x.writers.Load(); n != 0 {
		x.t.Errorf("%d writers beside a reader", n)
	}
	x.turns.Add(1)
	x.readers.Add(-1)
	mustUnlock(x.t, lease)
}

func (x *readWriteStress) got(lease *lock.Lease, err error) *lock.Lease {
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
		x.t.Errorf("error %v", err)
	}
	return lease
}

// A server that has run out of memory takes releases, downgrades and force, which make room.
func TestServerReadWriteWithoutMemory(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	c := serverLocks(t, s, lock.Config{})
	full := func(on bool) {
		limit := "0"
		if on {
			limit = "1"
		}
		s.Do("CONFIG", "SET", "maxmemory", limit)
	}
	owner := c.NewOwner()
	first, second := mustRead(t, c, lock.As(owner)), mustRead(t, c, lock.As(owner))
	full(true)
	if _, err := c.ReadWrite("job").Read().TryLock(t.Context()); err == nil || errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("TryLock() = %v on a server without memory", err)
	}
	mustUnlock(t, first)
	mustUnlock(t, second)
	full(false)
	write := mustWrite(t, c)
	full(true)
	read := mustDowngrade(t, write)
	mustUnlock(t, read)
	full(false)
	outer, inner := mustWrite(t, c, lock.As(owner)), mustWrite(t, c, lock.As(owner))
	full(true)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
	full(false)
}
