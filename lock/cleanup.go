package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// latchPause gathers the latches of several releases before they are deleted.
	latchPause = 10 * time.Millisecond
	// sweepPause is the time between two sweeps. A latch that may serve again is deleted by the second one.
	sweepPause = 100 * time.Millisecond
	// cleanupLimit bounds what is sent at once, and leaves a connection the time to find out that it is dead. In a cluster one command may wait for its slot while the others of its batch
	// have been answered: there freshLimit and againLimit do.
	cleanupLimit, freshLimit, againLimit = 10 * time.Second, 250 * time.Millisecond, time.Second
	// cleanupLast is how long Close goes on.
	cleanupLast = time.Second
	// repeatMin and repeatMax bound the growing pauses between repeats.
	repeatMin, repeatMax = 20 * time.Millisecond, 200 * time.Millisecond
	// cleanupBatch is how many locks or permits one batch is about: callers of the same connection wait for no more.
	cleanupBatch = 256
	// cleanupLanes is how many batches of repeats are under way at once.
	cleanupLanes = 64
)

// cleanup does what must be done after the call that made it necessary has returned: it repeats releases that were not
// confirmed, undoes acquires that were not answered, and deletes the latches of releases that were. The jobs of each server
// go to it in batches, one after the other, releases first.
type cleanup struct {
	client  *Client
	wg      sync.WaitGroup
	life    context.Context // of what the loop sends; ended when Close has waited for long enough
	end     context.CancelFunc
	signal  chan struct{} // has room for one; there is work
	closing chan struct{} // closed by close: the loop ends when nothing is left to do
	batches sync.WaitGroup
	apart   atomic.Bool // keys of several locks cannot be in one command

	mu       sync.Mutex // guards the following
	started  bool
	closed   bool // whoever adds something does it himself
	jobs     []*job
	returned []batch // which have run
	flushed  bool    // the deletion of latches that was under way has ended
	latches  []latch
	spares   map[string]spare // by the name of the lock
	sweeps   bool             // the loop looks after the spares
	given    CloseError       // what was given up
}

// job is one thing to repeat until the server has confirmed it or it has become pointless: the release of lease, a change,
// or, if both are nil, the undo of request.
type job struct {
	lease   *Lease
	change  *change
	request request
	behind  *request      // to be undone when that one has been; nil: none
	late    bool          // the acquire may come yet, and has to meet its latch
	turn    bool          // the owner's turn is held
	since   time.Time     // of the first release
	until   time.Time     // when there is nothing left to do: the lease has ended on the server
	done    chan struct{} // closed with outcome set; nil for an undo
	outcome error

	// Owned by the loop, and by the batch that the job is in.
	stale bool // what was sent is a late release
	again bool // it was sent before
	next  time.Time
	pause time.Duration
	over  bool
}

// spare is a latch for the next release of the same lock: where that comes soon it takes no command to delete it.
type spare struct {
	key  string
	idle bool // since the last sweep
}

type latch struct {
	name, key string
	until     int64 // it stays until then, by the server's clock, in ms: a request that had no answer may come yet; 0: no longer than now
}

func (u *cleanup) init(c *Client) {
	u.client = c
	u.signal = make(chan struct{}, 1)
	u.closing = make(chan struct{})
	u.life, u.end = context.WithCancel(context.Background())
}

// undo takes back an acquire whose outcome is not known, with whatever turn r holds. A late acquire may still be on its way: the undo
// leaves its latch for it to meet.
func (c *Client) undo(r *request, start instant, late bool) {
	if r.target.kind.undo == nil {
		return
	}
	c.undoBoth(r, nil, start, late)
}

// undoBoth is undo of two requests of one owner, one after the other.
func (c *Client) undoBoth(r, behind *request, start instant, late bool) {
	if r.latch == "" { // it has got by a relay what it did not ask for
		r.latch = newLatch(r.target)
	}
	c.takeBack(&job{
		request: *r,
		behind:  behind,
		late:    late || r.unsure,
		turn:    r.state != nil,
		until:   start.t.Add(r.lease).Add(arrival),
	})
	c.endDoubt(r)
}

// takeBack has a job run in the background, or here, for a while, when that has ended.
func (c *Client) takeBack(j *job) {
	if !c.cleanup.add(j) {
		c.cleanup.runAlone(j)
	}
}

// add hands a job to the loop. It reports false if that has ended.
func (u *cleanup) add(j *job) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.jobs = append(u.jobs, j)
	u.startLocked()
	return true
}

// close has the loop end when nothing is left to do, or with ctx. It returns what was given up then.
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

// addLatch has the outcome of a release forgotten that its caller has learnt.
func (u *cleanup) addLatch(name, key string) { u.settleLatch(name, key, false, 0) }

// settleLatch has a latch deleted, or, if it stays, kept until the last moment at which a request with it is good.
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

// spareLatch returns a latch that keepLatch has kept for locks of this name, or "". It is the caller's from then on.
func (u *cleanup) spareLatch(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.spares[name]
	if ok {
		delete(u.spares, name)
	}
	return s.key
}

// keepLatch keeps a latch for a while for another release of the lock, unless there is one.
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

// startSweeps has the loop look after the spares, and after what the client has parked.
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

// sweepLocked has the spares deleted that nobody has taken since the last time, or all, and ends what has been parked for long,
// or all of that too.
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
		u.spares = nil // which may have been many
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

func (u *cleanup) wakeLocked() { nudge(u.signal) }
