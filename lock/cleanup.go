package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

const (
	// latchPause gathers the latches of several releases before they are deleted.
	latchPause = 10 * time.Millisecond
	// sweepPause is the interval of sweeps. The second sweep deletes a latch kept for reuse.
	sweepPause = 100 * time.Millisecond
	// cleanupLimit bounds a batch, and gives a connection the time to detect its own failure. In a cluster a command
	// may wait for its slot after the rest of its batch has been answered, so freshLimit and againLimit apply
	// instead.
	cleanupLimit, freshLimit, againLimit = 10 * time.Second, 250 * time.Millisecond, time.Second
	// cleanupLast is the time limit of Close. Releases by tasks have tasksLast of it; cleanup repeats them in the rest.
	cleanupLast, tasksLast = time.Second, cleanupLast / 2
	// repeatMin and repeatMax bound the growing pauses between repeats.
	repeatMin, repeatMax = 20 * time.Millisecond, 200 * time.Millisecond
	// cleanupBatch limits the locks and permits per batch, and so the delay of callers on the same connection.
	cleanupBatch = 256
	// cleanupLanes limits the concurrent batches of repeats.
	cleanupLanes = 64
)

// cleanup does the work left by calls that have returned: it repeats unconfirmed releases, undoes unanswered
// acquires, and deletes the latches of confirmed releases. Each server gets its jobs in batches, one batch at a time,
// releases first.
type cleanup struct {
	client  *Client
	wg      sync.WaitGroup
	life    context.Context // for requests of the loop; ended when Close has waited long enough
	end     context.CancelFunc
	signal  chan struct{} // capacity 1: there is work
	closing chan struct{} // closed by close: the loop ends when no work is left
	batches sync.WaitGroup
	apart   atomic.Bool // a command cannot have keys of several locks

	mu       sync.Mutex // guards the following
	started  bool
	closed   bool // callers do new work themselves
	jobs     []*job
	returned []batch // finished batches
	flushed  bool    // the deletion of latches under way has ended
	latches  []latch
	spares   map[string]spare // by the name of the lock
	sweeps   bool             // the loop sweeps the spares
	given    CloseError       // the abandoned work
}

// job is work to repeat until the server confirms it or the job has become pointless: the release of lease, a change,
// or, if both are nil, the undo of request.
type job struct {
	lease   *Lease
	change  *change
	request request
	behind  *request      // undone after request; nil for none
	place   any           // the place in the line of request's lock to leave, instead of an undo; nil for none
	late    bool          // the acquire may still arrive, and must find its latch
	turn    bool          // the job holds the owner's turn
	since   time.Time     // the time of the first release
	until   time.Time     // the end of the job's purpose: the lease has ended on the server
	done    chan struct{} // closed with outcome set; nil for an undo
	outcome error
	client  *Client   // for the Trace; nil if not traced
	added   time.Time // for the Trace

	// Owned by the loop, and by the batch that the job is in.
	stale bool // the last request was a late release
	again bool // a request was sent before
	next  time.Time
	pause time.Duration
	over  bool
}

// spare is a latch kept for the next release of the same lock, which saves the command to delete the latch.
type spare struct {
	key  string
	idle bool // unused since the last sweep
}

type latch struct {
	name, key string
	until     int64 // the end of the latch, by the server's clock, in ms, as a request may still arrive; 0: now
}

func (u *cleanup) init(c *Client) {
	u.client = c
	u.signal = make(chan struct{}, 1)
	u.closing = make(chan struct{})
	u.life, u.end = context.WithCancel(context.Background())
}

// undo reverts an acquire with an unknown outcome, together with the turn of r. A late acquire may still arrive: the
// undo leaves a latch to stop the acquire.
func (c *Client) undo(r *request, start clock.Instant, late bool) {
	if r.target.kind.Undo == nil {
		return
	}
	c.undoBoth(r, nil, start, late)
}

// undoBoth undoes two requests of one owner, one after the other.
func (c *Client) undoBoth(r, behind *request, start clock.Instant, late bool) {
	if r.latch == "" { // a relay granted an unrequested hold
		r.latch = newLatch(r.target)
	}
	c.takeBack(&job{
		request: *r,
		behind:  behind,
		late:    late || r.unsure,
		turn:    r.state != nil,
		until:   start.Time.Add(r.lease).Add(remote.Arrival),
	})
	c.endDoubt(r)
}

// takeBack runs a job in the background, or here for a limited time if the loop has ended.
func (c *Client) takeBack(j *job) {
	if !c.cleanup.add(j) {
		c.cleanup.runAlone(j)
	}
}

// add hands a job to the loop, and reports false if the loop has ended.
func (u *cleanup) add(j *job) bool {
	j.beginTrace(u.client)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.jobs = append(u.jobs, j)
	u.startLocked()
	return true
}

// close ends the loop when no work is left, or with ctx, and returns the abandoned work.
func (u *cleanup) close(ctx context.Context) CloseError {
	u.mu.Lock()
	if !u.started {
		u.closed = true
	}
	u.mu.Unlock()
	close(u.closing)
	stop := context.AfterFunc(ctx, u.end)
	u.wg.Wait()
	stop()
	u.end()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.given
}

// addLatch deletes the latch of a release whose caller knows the outcome.
func (u *cleanup) addLatch(name, key string) { u.settleLatch(name, key, false, 0) }

// settleLatch deletes a latch or, with stays, keeps the latch until no request with it is valid.
func (u *cleanup) settleLatch(name, key string, stays bool, last int64) {
	l := latch{name: name, key: key}
	if stays {
		l.until = last
	}
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		u.forget(context.Background(), []latch{l}, cleanupLast)
		return
	}
	u.latches = append(u.latches, l)
	if len(u.latches) == 1 {
		u.startLocked()
	}
	u.mu.Unlock()
}

// spareLatch returns a latch kept by keepLatch for locks of the given name, or "". The caller owns the latch.
func (u *cleanup) spareLatch(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.spares[name]
	if ok {
		delete(u.spares, name)
	}
	return s.key
}

// keepLatch keeps a latch for the next release of the lock, unless another latch is kept already.
func (u *cleanup) keepLatch(name, key string) {
	u.mu.Lock()
	if _, ok := u.spares[name]; ok || u.closed {
		u.mu.Unlock()
		u.addLatch(name, key)
		return
	}
	if u.spares == nil {
		u.spares = make(map[string]spare)
	}
	u.spares[name] = spare{key: key}
	u.startSweepsLocked()
	u.mu.Unlock()
}

// startSweeps makes the loop sweep the spares and the client's parked watches.
func (u *cleanup) startSweeps() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.startSweepsLocked()
}

func (u *cleanup) startSweepsLocked() {
	if !u.sweeps {
		u.sweeps = true
		u.startLocked()
	}
}

// sweepLocked deletes the spares unused since the last sweep, and ends watches parked for long. With all, sweepLocked
// removes all of both.
func (u *cleanup) sweepLocked(all bool) {
	for name, s := range u.spares {
		if s.idle || all {
			delete(u.spares, name)
			u.latches = append(u.latches, latch{name: name, key: s.key})
		} else {
			u.spares[name] = spare{key: s.key, idle: true}
		}
	}
	if len(u.spares) == 0 {
		u.spares = nil // frees a possibly large map
	}
	parked := u.client.sweepParked(all)
	u.sweeps = parked || len(u.spares) > 0
}

func (u *cleanup) startLocked() {
	if !u.started {
		u.started = true
		u.wg.Go(u.loop)
	}
	u.wakeLocked()
}

func (u *cleanup) wakeLocked() { notify(u.signal) }
