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
type queue struct {
	mu     sync.Mutex // guards events
	events []event

	working sync.Mutex // held during the work; guards taken
	taken   []event
}

// add adds an event, and calls work for all events if there are enough.
func (q *queue) add(e event, work func(*event)) {
	q.mu.Lock()
	q.events = append(q.events, e)
	full := len(q.events) >= fullQueue
	q.mu.Unlock()
	if full && q.working.TryLock() { // what comes meanwhile waits for the next event, or for flush
		defer q.working.Unlock()
		q.workLocked(work)
	}
}

// flush calls work for all events, and returns after their work.
func (q *queue) flush(work func(*event)) {
	q.working.Lock()
	defer q.working.Unlock()
	q.workLocked(work)
}

func (q *queue) workLocked(work func(*event)) {
	q.mu.Lock()
	q.events, q.taken = q.taken[:0], q.events
	q.mu.Unlock()
	defer func() { clear(q.taken) }()
	for i := range q.taken {
		work(&q.taken[i])
	}
}
