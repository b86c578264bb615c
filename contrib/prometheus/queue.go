package lockprom

import (
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// source is the callback that an event is from.
type source uint8

const (
	called source = iota
	begun
	acquired
	released
)

// event is what the metrics of a pair of Lock and Unlock need of a callback.
type event struct {
	source source
	batch  conn.Batch // of a call

	// Of an acquire.
	try, standby, held, handedOver, unacknowledged bool

	kind    string // of the lock; of a call the command
	name    string // of the lock; of a call the script
	server  string // of a call
	failure string // of a call
	outcome lock.Outcome
	took    time.Duration
}

// fullQueue is the number of events that are measured together: those of a dozen pairs.
const fullQueue = 64

// queue keeps events until there are enough of them, or until somebody wants to know. A program that waits for its server runs with
// cold caches after each wait: to measure at once would cost each pair ten times as much as to measure a dozen pairs together.
// The order in which events are worked on is of no importance.
type queue struct {
	working sync.RWMutex // held for reading during the work of add, and for writing by flush, which waits for all other work

	mu     sync.Mutex // guards the following, taken after working
	events []event
	spare  []event // memory for the next turn of add
}

// add adds an event, and if there are enough, calls work for fullQueue of them. Events beyond, as after a flush that took long, are
// left to the next calls.
func (q *queue) add(e event, work func(*event)) {
	q.mu.Lock()
	q.events = append(q.events, e)
	rest := len(q.events) - fullQueue
	if rest < 0 || !q.working.TryRLock() {
		q.mu.Unlock()
		return
	}
	defer q.working.RUnlock()
	batch := append(q.spare[:0], q.events[rest:]...)
	q.spare = nil
	clear(q.events[rest:])
	if q.events = q.events[:rest]; rest == 0 && cap(q.events) > 2*fullQueue {
		q.events = nil
	}
	q.mu.Unlock()
	q.work(batch, work)
	clear(batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = batch
}

// flush calls work for all events, and returns after their work.
func (q *queue) flush(work func(*event)) {
	q.working.Lock()
	defer q.working.Unlock()
	q.mu.Lock()
	batch := q.events
	q.events = nil
	q.mu.Unlock()
	q.work(batch, work)
}

// work calls work for the events of batch. If work panics, the events behind stay in the queue.
func (q *queue) work(batch []event, work func(*event)) {
	done := 0
	defer func() {
		if done < len(batch) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.events = append(q.events, batch[done:]...)
		}
	}()
	for done < len(batch) {
		done++
		work(&batch[done-1])
	}
}
