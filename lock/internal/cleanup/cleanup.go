// Package cleanup does the work left by calls that have returned, in a goroutine for each client: it repeats unconfirmed
// releases and changes, undoes unanswered acquires, and deletes latches.
//
//	work.go     Work, with several implementations, and Job: Work under way
//	loop.go     the goroutine and its batches
//	latches.go  latches to delete, and latches kept for reuse
//	kept.go     confirmed work, sent again after a loss
//
// Invariants:
//
//   - A Job ends exactly once: confirmed, refused for good, pointless, or given up and counted.
//   - A Job has at most a single request under way, and with the request the turn of its Owner.
//   - A server has at most a single batch of first requests under way. Repeats never delay first requests.
package cleanup

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

const (
	// latchPause gathers the latches of several releases before they are deleted.
	latchPause = 10 * time.Millisecond
	// sweepPause is the interval of sweeps. The second sweep deletes a latch kept for reuse.
	sweepPause = 100 * time.Millisecond
	// batchLimit bounds a batch, and gives a connection the time to detect its own failure. In a cluster a command
	// may wait for its slot after the rest of its batch has been answered, so freshLimit and againLimit apply
	// instead.
	batchLimit, freshLimit, againLimit = 10 * time.Second, 250 * time.Millisecond, time.Second
	// aloneLast is the time limit of a job after Close.
	aloneLast = time.Second
	// repeatMin and repeatMax bound the growing pauses between repeats.
	repeatMin, repeatMax = 20 * time.Millisecond, 200 * time.Millisecond
	// batchSize limits the locks and permits per batch, and so the delay of callers on the same connection.
	batchSize = 256
	// lanesMost limits the concurrent batches of repeats.
	lanesMost = 64
)

// Cleanup is the work of one client. Each server gets its jobs in batches, one batch at a time, releases first. Any number of
// goroutines may use a Cleanup at once.
type Cleanup struct {
	cfg        Config
	wg         sync.WaitGroup
	life       context.Context // for requests of the loop; ended when Close has waited long enough
	end        context.CancelFunc
	asking     context.Context // for questions about masters; ended by Close: then the loop ends when no work is left
	endAsk     context.CancelFunc
	signal     chan struct{} // capacity 1: there is work
	batches    sync.WaitGroup
	oneKeyOnly atomic.Bool // a command cannot have keys of several locks
	lost       atomic.Bool // a master may have been replaced
	unknown    atomic.Bool // at the last repetition a master was unknown

	mu           sync.Mutex // guards the following
	started      bool
	closed       bool // the loop has ended: Take runs jobs itself
	jobs         []*Job
	returned     []batch // finished batches
	latches      []latch
	spares       map[string]spare // by the name of the lock
	sweeps       bool             // the loop sweeps the spares
	keptReleases keptList         // releases and undos
	keptChanges  keptList
	abandoned    Abandoned
}

// Config is what a Cleanup needs of its client.
type Config struct {
	Server *remote.Server
	Runner *remote.Runner
	Clocks *remote.Clocks
	// Sweep drops what the client keeps for reuse, if it is unused for some sweeps, or all of it, and reports whether any is
	// left. After StartSweeps, Cleanup calls Sweep every 100 ms until nothing is left.
	Sweep func(all bool) (left bool)
	// Added is called at the begin of a job, and its result at the end.
	Added func(w Work) (ended func(outcome error))
	// Refused converts the error of a server that refuses a job for good.
	Refused func(err error) error
	// Uncertain is the error of a job that has become pointless, and Ended of a job given up at Close.
	Uncertain, Ended error
}

// New returns a Cleanup without work. Its goroutine starts with the first work. Call Close.
func New(cfg Config) *Cleanup {
	u := &Cleanup{cfg: cfg, signal: make(chan struct{}, 1),
		keptReleases: keptList{maxAge: keptFor}, keptChanges: keptList{maxAge: ChangeFor}}
	u.life, u.end = context.WithCancel(context.Background())
	u.asking, u.endAsk = context.WithCancel(u.life)
	return u
}

// Take runs a job in the background, or here for a limited time if the loop has ended.
func (u *Cleanup) Take(j *Job) {
	if !u.add(j) {
		u.runAlone(j)
	}
}

// Add hands a job to the loop. If the loop has ended, Add reports false: nothing has happened.
func (u *Cleanup) Add(j *Job) bool {
	added := u.add(j)
	if !added {
		j.ended(u.cfg.Ended)
	}
	return added
}

func (u *Cleanup) add(j *Job) bool {
	j.ended = u.cfg.Added(j.work)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.jobs = append(u.jobs, j)
	u.startLocked()
	return true
}

// Idle reports whether no job and no latch is new.
func (u *Cleanup) Idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.jobs)+len(u.latches)+len(u.spares) == 0
}

// Close ends the loop when no work is left, or with ctx, and returns the abandoned work.
func (u *Cleanup) Close(ctx context.Context) Abandoned {
	u.mu.Lock()
	if !u.started {
		u.closed = true
	}
	u.mu.Unlock()
	u.endAsk()
	stop := context.AfterFunc(ctx, u.end)
	u.wg.Wait()
	stop()
	u.end()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.abandoned
}

func (u *Cleanup) startLocked() {
	if !u.started {
		u.started = true
		u.wg.Go(u.loop)
	}
	netfail.Signal(u.signal)
}
