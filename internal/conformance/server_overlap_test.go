package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// rivals are callers who want the same locks, one of each kind, all the time. Nobody may have one together with somebody else.
type rivals struct {
	t     *testing.T
	names []string
	wg    sync.WaitGroup
	stop  context.CancelFunc

	mu       sync.Mutex
	holders  map[string]*lock.Lease // of each name
	token    map[string]int64       // the last one
	granted  map[string]int
	by       map[*lock.Client]int
	lost     int
	overlaps []string
}

// contenders is how many callers want each lock.
const contenders = 8

// compete begins to lock the names, each a lock of the kind that its number says, by the clients.
func compete(t *testing.T, clients []*lock.Client, names []string) *rivals {
	r := &rivals{
		t: t, names: names, holders: map[string]*lock.Lease{}, token: map[string]int64{},
		granted: map[string]int{}, by: map[*lock.Client]int{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	t.Cleanup(cancel)
	for i, name := range names {
		for j := range contenders {
			c := clients[j%len(clients)]
			r.wg.Go(func() {
				for ctx.Err() == nil {
					r.once(ctx, c, ofKind(c, i, j, name), name)
				}
			})
		}
	}
	return r
}

// ofKind is the lock of a name as its contenders see it.
func ofKind(c *lock.Client, kind, contender int, name string) locker {
	switch kind % 6 {
	case 0:
		return c.Reentrant(name)
	case 1:
		return c.Fenced(name)
	case 2:
		return c.Fair(name)
	case 3:
		return c.Spin(name, lock.Backoff{})
	case 4:
		return c.ReadWrite(name).Write()
	}
	return permit{c.PermitSemaphore(name)}
}

// permit is a semaphore of one permit, as a lock.
type permit struct{ *lock.PermitSemaphore }

func (p permit) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	for {
		_, err := p.TrySetPermits(ctx, 1)
		if err == nil {
			lease, err := p.Acquire(ctx, opts...)
			if !errors.Is(err, lock.ErrNotSet) { // which a failover may have lost
				return lease, err
			}
		} else if !conn.SafeToRetry(err) || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (p permit) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.TryAcquire(ctx, opts...)
}

// once takes a lock, keeps it for a while, one time in eight for longer than a lease lasts, and gives it back.
func (r *rivals) once(ctx context.Context, c *lock.Client, l locker, name string) {
	lease, err := l.Lock(ctx)
	if err != nil {
		if ctx.Err() == nil && !due(err) {
			r.t.Errorf("Lock of %s = %v", name, err)
		}
		pause(ctx, 10*time.Millisecond)
		return
	}
	r.mu.Lock()
	if other := r.holders[name]; other != nil && other.Err() == nil && lease.Err() == nil {
		r.overlaps = append(r.overlaps, fmt.Sprintf("%s: %s has it together with %s, which is valid for %v more",
			name, lease.Owner(), other.Owner(), time.Until(other.ValidUntil())))
	}
	if token := lease.Token(); token > 0 {
		if token <= r.token[name] && lease.Err() == nil {
			r.overlaps = append(r.overlaps, fmt.Sprintf("%s: token %d after %d", name, token, r.token[name]))
		}
		r.token[name] = max(r.token[name], token)
	}
	r.holders[name] = lease
	r.granted[name]++
	r.by[c]++
	r.mu.Unlock()
	hold := rand.N(50 * time.Millisecond)
	if rand.IntN(8) == 0 {
		hold = 4 * time.Second
	}
	select {
	case <-lease.Lost():
	case <-time.After(hold):
	case <-ctx.Done():
	}
	r.mu.Lock()
	if lease.Err() != nil {
		r.lost++
	}
	if r.holders[name] == lease {
		delete(r.holders, name)
	}
	r.mu.Unlock()
	_ = lease.Unlock(context.Background()) // a master may be gone with it
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// awaitGrants waits until each lock has been had by n more.
func (r *rivals) awaitGrants(n int) {
	r.t.Helper()
	r.mu.Lock()
	before := maps.Clone(r.granted)
	r.mu.Unlock()
	eventually(r.t, "that everything is granted", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !slices.ContainsFunc(r.names, func(name string) bool { return r.granted[name] < before[name]+n })
	})
}

// grantsOf is how many locks a client has had.
func (r *rivals) grantsOf(c *lock.Client) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[c]
}

// found is how many times two had one lock.
func (r *rivals) found() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.overlaps)
}

// halt waits until all have stopped.
func (r *rivals) halt() {
	r.t.Helper()
	r.stop()
	awaitAll(r.t, &r.wg, "the end of all calls")
	r.t.Logf("granted %v, %d lost, %d overlaps", r.granted, r.lost, len(r.overlaps))
}

// end waits until all have stopped, and says what was wrong.
func (r *rivals) end() {
	r.t.Helper()
	r.halt()
	for _, overlap := range r.overlaps {
		r.t.Error(overlap)
	}
}

// replacements are ways for a master to be replaced by its replica, of which a short test goes the first.
var replacements = []func(c *redistest.Cluster, master *redistest.Server){
	func(c *redistest.Cluster, master *redistest.Server) {
		master.Pause()
		c.AwaitTakeover(master)
		master.Continue()
	},
	func(c *redistest.Cluster, master *redistest.Server) {
		master.Kill()
		c.AwaitTakeover(master)
		master.Restart()
	},
	demand("FORCE"), demand("TAKEOVER"), demand(),
}

// demand has a replica take its master's place on demand.
func demand(how ...any) func(c *redistest.Cluster, master *redistest.Server) {
	return func(c *redistest.Cluster, master *redistest.Server) {
		if replica := c.Replica(master); replica != nil {
			_, _ = replica.Try(append([]any{"CLUSTER", "FAILOVER"}, how...)...) // which may refuse if it has just begun to follow
		}
	}
}

// Masters are replaced, one soon after the other, while locks of all kinds are wanted. Nobody has one together with somebody
// else, and tokens only grow. A master that goes on does what it was asked before it learns that it has been replaced.
func TestLocksThroughQuickFailovers(t *testing.T) {
	const pace = 4 * time.Second
	failovers := 2
	if d := torture(t); d > 0 {
		failovers = max(failovers, int(d/pace))
	}
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		p := processOf(t, c, lock.Config{Lease: 3 * time.Second}, 2*time.Second)
		var names []string
		for i, s := range c.Masters() {
			names = append(names, namesOf(c, s, fmt.Sprintf("rival-%d-%d-", proto, i), 6)...)
		}
		r := compete(t, p.locks, names)
		for i := range failovers {
			began := time.Now()
			way := replacements[0]
			if failovers > 2 && i%2 == 1 {
				way = replacements[i/2%len(replacements)]
			}
			if old := c.Owner(slotOf(names[6*rand.IntN(3)])); old != nil {
				way(c, old)
			}
			pause(t.Context(), time.Until(began.Add(pace)))
		}
		c.Await()
		r.awaitGrants(1)
		r.end()
		p.close(t)
		redistest.NoGoroutines(t)
	})
}

// A master that sentinels watch is replaced, one soon after the other, while locks of all kinds are wanted: it hangs, and every other
// time another one is made the master while it serves, or it dies.
func TestLocksThroughQuickSentinelFailovers(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		var clients []*lock.Client
		for range 2 {
			cfg := s.Config()
			cfg.Timeout, cfg.Retry = 2*time.Second, conn.Retry{Attempts: 1 << 20, Budget: -1}
			pool, err := conn.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			c, err := lock.New(pool, lock.Config{Lease: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		var names []string
		for i := range 6 {
			names = append(names, fmt.Sprintf("rival-%d-%d", proto, i))
		}
		hang, others := redistest.Failovers[1], []redistest.Failover{redistest.Failovers[0], redistest.Failovers[2]}
		r := compete(t, clients, names)
		begin := time.Now()
		for round := 0; round < 2 || time.Since(begin) < torture(t); round++ {
			way := hang
			if round%2 == 1 {
				way = others[round/2%len(others)]
			}
			old := s.Master()
			way.Begin(s, old)
			s.AwaitMaster(old)
			way.End(s, old)
			if torture(t) > 0 {
				pause(t.Context(), 3*time.Second)
			} else {
				r.awaitGrants(1)
			}
		}
		s.AwaitHealthy()
		r.awaitGrants(1)
		r.end()
	})
}
