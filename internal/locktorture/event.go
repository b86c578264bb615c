// Package locktorture judges how several processes used locks. Each process logs its requests, holds, losses and releases, by a
// single clock of the machine. The parent process collects the events and looks for violations of the [Rules] of the kind of
// lock: above all, two owners of the same lock at the same time.
package locktorture

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the kind of an event.
type Kind string

const (
	// Asked: a lock is about to be asked for.
	Asked Kind = "asked"
	// Refused: the lock was not acquired, for the reason in Text.
	Refused Kind = "refused"
	// Acquired: the holder may rely on the lock until Until.
	Acquired Kind = "acquired"
	// Extended: the hold now lasts until Until.
	Extended Kind = "extended"
	// Lost: the holder learned of the loss, for the reason in Text, and may have relied on the lock until Until.
	Lost Kind = "lost"
	// Releasing: the release begins; the holder no longer relies on the lock.
	Releasing Kind = "releasing"
	// Released: the release has returned, with the outcome in Text.
	Released Kind = "released"
	// Failed: the process saw a violation, described by Text.
	Failed Kind = "failed"
	// Note: a remark of the process, in Text.
	Note Kind = "note"
	// Set: there are as many Permits from now on, or a count of so many.
	Set Kind = "set"
	// Seen: the number of Permits, with leases free and taken, without leases only free; or a count.
	Seen Kind = "seen"
)

// Changes of the line of waiters on the server. A single process logs the changes, in the order of the server.
const (
	// Queued: the owner stands at the end of the line.
	Queued Kind = "queued"
	// Fronted: the owner stands at the head of the line.
	Fronted Kind = "fronted"
	// Left: the owner has left the line, from any place.
	Left Kind = "left"
	// Dropped: the head of the line was removed.
	Dropped Kind = "dropped"
	// Granted: the owner has the lock, and is out of the line.
	Granted Kind = "granted"
	// Touched: the lock was released, or its lease extended.
	Touched Kind = "touched"
)

// The modes of holds and requests of kinds with several modes.
const (
	Read = "read" // beside others
	Down = "down" // counts down
	Wait = "wait" // for a count to be 0
)

// The outcomes of a release known to the rules.
const (
	Freed   = "freed"    // a hold was released
	NotHeld = "not held" // the lock had been lost
)

// Event is an event in a process.
type Event struct {
	At      time.Duration // by Now
	Process int
	Hold    int64 `json:",omitempty"` // the number of the process's request and its hold, from 1; 0 for none
	Kind    Kind
	Name    string        `json:",omitempty"` // of the lock
	Mode    string        `json:",omitempty"`
	Owner   string        `json:",omitempty"` // of the hold
	Token   int64         `json:",omitempty"` // of the hold
	Permits int           `json:",omitempty"`
	Until   time.Duration `json:",omitempty"` // by Now; 0 is for ever. Of a request: the limit of its wait
	Text    string        `json:",omitempty"`
}

// Parse reads a line written by a Log.
func Parse(line []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("locktorture: %q: %w", line, err)
	}
	return e, nil
}

// Log writes the events of a process, each at once as a line, so that events before a kill are known. Any number of goroutines
// may use a Log.
type Log struct {
	process int
	holds   atomic.Int64

	mu sync.Mutex // held while writing to w
	w  io.Writer
}

// NewLog returns a log of the process with the given number. The log writes to w, a pipe to the judge.
func NewLog(w io.Writer, process int) *Log { return &Log{process: process, w: w} }

// NextHold returns the number of a further hold.
func (l *Log) NextHold() int64 { return l.holds.Add(1) }

// Add writes an event. The zero At is now. A failed write is lost: nobody could be told.
func (l *Log) Add(e Event) {
	e.Process = l.process
	if e.At == 0 {
		e.At = Now()
	}
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // no Event can be refused
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.Write(append(line, '\n'))
}

// At converts an instant of time.Now to the clock of the machine. The two clocks are read together, and again if the process
// was stopped in between.
func At(t time.Time) time.Duration {
	for {
		before := Now()
		left := time.Until(t)
		if after := Now(); after-before < 100*time.Microsecond {
			return before + left
		}
	}
}
