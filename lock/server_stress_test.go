package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// stress is many goroutines that do everything there is to do with a few locks, all at once.
type stress struct {
	t       *testing.T
	clients []*lock.Client
	closing atomic.Bool // the last client is being closed, or is

	// inside counts who has each of the calm locks, which nobody takes by force and whose leases do not end.
	inside [3]atomic.Int32
	turns  atomic.Int64 // in which a calm lock was had

	released, uncertain atomic.Int64 // rough locks, and those of which it is not certain
}

// rough is how the names of the locks begin whose leases are short and may be taken away.
const rough = "rough-"

// TestStress ends with nothing left behind, whatever is done at the same time, a Close among it.
func TestStress(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		before := countResources()
		pool, err := conn.Open(t.Context(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		x := &stress{t: t}
		for range 3 {
			c, err := lock.New(pool, lock.Config{Lease: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			x.clients = append(x.clients, c)
		}
		x.run(2 * time.Second)
		if x.turns.Load() < 10 {
			t.Errorf("the calm locks were had %d times", x.turns.Load())
		}
		if n, of := x.uncertain.Load(), x.released.Load(); 4*n > of {
			t.Errorf("%d of %d releases were not confirmed", n, of)
		}
		for _, c := range x.clients {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if !c.Idle() {
				t.Errorf("after Close the client has %+v and is not idle", c.Stats())
			}
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		// A lock whose release Close has given up goes with its lease.
		latchesLeft(t, s, patience, anyNumber)
		if after, ok := resourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

func (x *stress) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(x.t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for n := g; ctx.Err() == nil; n++ {
				c := x.clients[n%len(x.clients)]
				if name := rng.IntN(5); name < len(x.inside) {
					x.calm(ctx, rng, c, name)
				} else {
					x.rough(ctx, rng, c, fmt.Sprint(rough, name))
				}
			}
		})
	}
	pause(ctx, length/2)
	x.closing.Store(true)
	if err := x.clients[len(x.clients)-1].Close(); err != nil {
		x.t.Error(err)
	}
	wg.Wait()
}

// ask asks for a lock in one of the ways there are. It returns nil if it was not to be had.
func (x *stress) ask(ctx context.Context, rng *rand.Rand, c *lock.Client, name string, opts ...lock.Option) *lock.Lease {
	wait, cancel := context.WithTimeout(ctx, upTo(rng, 50*time.Millisecond))
	defer cancel()
	l := c.Reentrant(name)
	var lease *lock.Lease
	var err error
	try := rng.IntN(3) == 0
	if try {
		lease, err = l.TryLock(ctx, opts...)
	} else {
		lease, err = l.Lock(wait, opts...)
	}
	switch {
	case err == nil:
		return lease
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded):
	case try && strings.HasPrefix(name, rough) && errors.Is(err, lock.ErrLost): // granted, with a lease that was over too soon
	case errors.Is(err, lock.ErrClosed) && x.closing.Load():
	default:
		x.t.Errorf("Lock %s: %v", name, err)
	}
	return nil
}

// calm has a lock that cannot be lost, but for its client being closed.
func (x *stress) calm(ctx context.Context, rng *rand.Rand, c *lock.Client, number int) {
	name := fmt.Sprint("calm-", number)
	var opts []lock.Option
	reentrant := rng.IntN(3) == 0
	if reentrant {
		opts = []lock.Option{lock.As(c.NewOwner())}
	}
	lease := x.ask(ctx, rng, c, name, opts...)
	if lease == nil {
		return
	}
	x.turns.Add(1)
	if n := x.inside[number].Add(1); n != 1 {
		x.t.Errorf("%d have %s at once", n, name)
	}
	work, cancel := lease.Context(context.Background())
	if reentrant {
		if further, err := c.Reentrant(name).TryLock(context.Background(), opts...); err == nil {
			x.give(further)
		} else if !x.closing.Load() {
			x.t.Errorf("further hold of %s: %v", name, err)
		}
	}
	if rng.IntN(4) == 0 {
		x.held(lease.Check(context.Background()))
	}
	pause(work, upTo(rng, 2*time.Millisecond))
	x.held(lease.Err())
	x.inside[number].Add(-1)
	x.give(lease)
	if work.Err() == nil {
		x.t.Error("the context of a lease goes on after Unlock")
	}
	cancel()
}

// held fails the test if a lease that nothing can end is over.
func (x *stress) held(err error) {
	if err != nil && !x.closing.Load() {
		x.t.Errorf("a calm lease is over: %v", err)
	}
}

// give releases a lease that cannot have been lost, twice, under a context that is over.
func (x *stress) give(lease *lock.Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 {
		// The release of an Owner's hold may be given up where the client is closed.
		if err := lease.Unlock(ctx); err != nil && !(x.closing.Load() && errors.Is(err, lock.ErrUncertain)) {
			x.t.Errorf("Unlock: %v", err)
		}
	}
}

// rough has a lock whose lease is short and which others take away.
func (x *stress) rough(ctx context.Context, rng *rand.Rand, c *lock.Client, name string) {
	if rng.IntN(8) == 0 {
		if _, err := c.Reentrant(name).ForceUnlock(ctx); err != nil && ctx.Err() == nil {
			x.t.Errorf("ForceUnlock: %v", err)
		}
		return
	}
	lease := x.ask(ctx, rng, c, name, lock.For(10*time.Millisecond+upTo(rng, 30*time.Millisecond)))
	if lease == nil {
		return
	}
	work, cancel := lease.Context(ctx)
	defer cancel()
	pause(work, upTo(rng, 20*time.Millisecond))
	if rng.IntN(4) == 0 {
		if err := lease.Check(ctx); err != nil && !errors.Is(err, lock.ErrLost) && ctx.Err() == nil {
			x.t.Errorf("Check: %v", err)
		}
	}
	var wg sync.WaitGroup
	var outcomes [2]error
	for i := range outcomes {
		wg.Go(func() { outcomes[i] = lease.Unlock(context.Background()) })
	}
	wg.Wait()
	x.released.Add(1)
	for _, err := range outcomes {
		switch {
		case err == nil, errors.Is(err, lock.ErrNotHeld):
		case errors.Is(err, lock.ErrUncertain): // with so short a lease it waits for no more than a second
			x.uncertain.Add(1)
			return
		default:
			x.t.Errorf("Unlock: %v", err)
		}
	}
	if (outcomes[0] == nil) != (outcomes[1] == nil) {
		x.t.Errorf("two outcomes of one release: %v, %v", outcomes[0], outcomes[1])
	}
}
