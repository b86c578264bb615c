package lock

import (
	"container/heap"
	"sync"
	"time"
)

const (
	// gather is the part of the renewal period by which a renewal may come early to share a script with others.
	gather = 10
	// clockTick is how often the clocks are compared while there are leases.
	clockTick = time.Second
	// clockGap is a difference between the clocks that only sleep, or a change of the clock, can make.
	clockGap = 250 * time.Millisecond
	// retryMin and retryMax bound the growing pauses after a renewal that failed.
	retryMin, retryMax = 50 * time.Millisecond, 500 * time.Millisecond
	// renewMin is the least time that a renewal gets; else it is a sixth of the lease.
	renewMin = 50 * time.Millisecond
	// batchesAtOnce is how many renewal scripts are sent in one go at most; fewer to a server that is slow.
	batchesAtOnce = 16
)

// watchdog renews the leases of a client, in one goroutine for all of them.
type watchdog struct {
	client *Client
	wg     sync.WaitGroup
	signal chan struct{} // has room for one; there is something due before wake

	alarms alarms

	mu       sync.Mutex // guards the following, and the watch of each lease; taken after a Lease's mu
	started  bool
	closed   bool
	round    int                 // how many batches to send in one go
	renewals schedule            // of leases that are renewed
	endings  schedule            // of those that are not, and end
	wake     time.Time           // when the loop looks next
	watched  map[*Lease]struct{} // leases whose deadline timer a sleeping machine would hold up
}

// renewal is a lease in a schedule.
type renewal struct {
	lease *Lease
	due   time.Time     // its renewal, or its end
	pause time.Duration // after the last failure; 0 if there was none
	index int           // in the schedule; -1 while it is being renewed
	ended bool          // the lease is over: not to be scheduled again

	trust trust // owned by the renewal that is under way
}

// trust is what is thought of the next renewal that is done.
type trust uint8

const (
	trusted    trust = iota
	doubted          // the last one failed
	confirming       // it will be the second one in a row
)

// schedule is a heap of renewals by due.
type schedule []*renewal

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	r := x.(*renewal)
	r.index = len(*s)
	*s = append(*s, r)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	r.index = -1
	return r
}

func (w *watchdog) init(c *Client) {
	w.client = c
	w.signal = make(chan struct{}, 1)
	w.round = batchesAtOnce
	w.watched = make(map[*Lease]struct{})
}

// add puts a lease that has just been granted under the watchdog's care: to be renewed, or to be forgotten at its end.
func (w *watchdog) add(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.watch.ended {
		return
	}
	l.watch.lease = l
	if l.renewed {
		w.pushLocked(&l.watch, l.start.t.Add(w.client.cfg.RenewEvery))
	} else {
		w.pushLocked(&l.watch, l.start.t.Add(validity(l.term)))
	}
}

func (w *watchdog) scheduleOf(l *Lease) *schedule {
	if l.renewed {
		return &w.renewals
	}
	return &w.endings
}

func (w *watchdog) pushLocked(r *renewal, due time.Time) {
	r.due = due
	heap.Push(w.scheduleOf(r.lease), r)
	w.wakeLocked(due)
}

// wakeLocked makes sure that the loop looks at due at the latest, and at the clocks before that.
func (w *watchdog) wakeLocked(due time.Time) {
	if w.closed {
		return
	}
	due = earlier(due, time.Now().Add(listenAfter))
	if !w.started {
		w.started = true
		w.wake = due
		seen := w.client.now()
		w.wg.Go(func() { w.loop(seen) })
		return
	}
	if due.Before(w.wake) {
		w.wake = due
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

// remove takes a lease that is over out of the watchdog's care. A renewal that is under way is not waited for.
func (w *watchdog) remove(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.watch.lease != nil && l.watch.index >= 0 {
		heap.Remove(w.scheduleOf(l), l.watch.index)
	}
	l.watch.ended = true
	delete(w.watched, l)
}

// watchClock has the lease looked at when the machine has slept, which its timer does not notice.
func (w *watchdog) watchClock(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[l] = struct{}{}
	w.wakeLocked(time.Now().Add(clockTick))
}

// close waits for the loop to end, which it does when the client is done.
func (w *watchdog) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
