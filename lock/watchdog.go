package lock

import (
	"container/heap"
	"sync"
	"time"
)

const (
	// gather is the divisor of the renewal period: a renewal may run early by RenewEvery/gather to share a script with others.
	gather = 10
	// clockTick is the interval of comparing the clocks while the client has leases.
	clockTick = time.Second
	// clockGap is the least difference between the clocks taken for a sleep of the machine or a change of the clock.
	clockGap = 250 * time.Millisecond
	// retryMin and retryMax bound the growing pauses after a failed renewal.
	retryMin, retryMax = 50 * time.Millisecond, 500 * time.Millisecond
	// renewMin is the minimum timeout of a renewal. The timeout is a sixth of the lease.
	renewMin = 50 * time.Millisecond
	// batchesAtOnce limits the renewal scripts sent in a write. A slow server gets fewer.
	batchesAtOnce = 16
)

// watchdog renews all leases of a client in a single goroutine.
type watchdog struct {
	client *Client
	wg     sync.WaitGroup
	signal chan struct{} // buffered, 1: signalled when an event is due earlier than the loop's timer

	alarms alarms

	mu       sync.Mutex // guards the following, and the watch of each lease; taken after a Lease's mu
	started  bool
	closed   bool
	round    int                 // number of batches to send in a write
	renewals schedule            // leases with renewal
	endings  schedule            // leases without renewal
	wake     time.Time           // time of the loop's next pass
	watched  map[*Lease]struct{} // leases with a deadline timer, which stands still while the machine sleeps
}

// renewal is a lease in a schedule.
type renewal struct {
	lease *Lease
	due   time.Time     // time of the renewal, or end of the lease
	pause time.Duration // pause after the last failure; 0 without a failure
	index int           // index in the schedule; -1 while the renewal is under way
	ended bool          // the lease is over and must not be scheduled again

	trust trust // owned by the renewal under way
}

// trust tells how to judge the next successful renewal.
type trust uint8

const (
	trusted    trust = iota
	doubted          // the last renewal failed
	confirming       // the last renewal was unconfirmed; the next success confirms the lease
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

// add schedules a new lease for renewal, or for its end if the lease is not renewed.
func (w *watchdog) add(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.watch.ended {
		return
	}
	l.watch.lease = l
	if l.renewed {
		w.pushLocked(&l.watch, l.dueBy(l.start.Time.Add(w.client.cfg.RenewEvery)))
	} else {
		w.pushLocked(&l.watch, l.dueBy(l.start.Time.Add(validity(l.term))))
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

// wakeLocked ensures a pass of the loop at due or earlier, and starts the loop if necessary.
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
		notify(w.signal)
	}
}

// remove unschedules an ended lease. It does not wait for a renewal under way.
func (w *watchdog) remove(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.watch.lease != nil && l.watch.index >= 0 {
		heap.Remove(w.scheduleOf(l), l.watch.index)
	}
	l.watch.ended = true
	delete(w.watched, l)
}

// watchClock adds the lease to the leases checked after a sleep of the machine, because timers stand still during a sleep.
func (w *watchdog) watchClock(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[l] = struct{}{}
	w.wakeLocked(time.Now().Add(clockTick))
}

// close waits for the loop to end. The loop ends after the close of client.done.
func (w *watchdog) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
