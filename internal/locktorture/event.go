// Package locktorture judges what several processes did with locks. Each of them logs what it asked for, held, lost and
// gave back, by one clock of the machine; the process that started them collects the events and looks for what is against
// the [Rules] of that kind of lock: two owners who had the same one at the same time, to begin with.
package locktorture

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what happened.
type Kind string

const (
	// Asked: a lock is about to be asked for.
	Asked Kind = "asked"
	// Refused: it was not acquired, for the reason in Text.
	Refused Kind = "refused"
	// Acquired: it was, and the holder may rely on it until Until.
	Acquired Kind = "acquired"
	// Extended: the hold now lasts until Until.
	Extended Kind = "extended"
	// Lost: the holder was told that it is lost, for the reason in Text, and may have relied on it until Until.
	Lost Kind = "lost"
	// Releasing: it is about to be released; the holder relies on it no more.
	Releasing Kind = "releasing"
	// Released: the release has returned, with the outcome in Text.
	Released Kind = "released"
	// Failed: the process saw something that must not be; Text says what.
	Failed Kind = "failed"
	// Note: the process has something to say, which is in Text.
	Note Kind = "note"
	// Set: there are as many Permits from now on, or a count of so many.
	Set Kind = "set"
	// Seen: so many Permits are there now, free and taken of those that have leases, free of others; or a count of so many.
	Seen Kind = "seen"
)

// What happens on the server to the line of those who wait for a lock. One process logs it, in the order of the server.
const (
	// Queued: the owner stands at the end of the line.
	Queued Kind = "queued"
	// Fronted: the owner stands at the head of the line.
	Fronted Kind = "fronted"
	// Left: the owner is out of the line, wherever it stood.
	Left Kind = "left"
	// Dropped: whoever headed the line is out of it.
	Dropped Kind = "dropped"
	// Granted: the owner has the lock, and is out of the line.
	Granted Kind = "granted"
	// Touched: the lock was given back, or its lease extended.
	Touched Kind = "touched"
)

// The modes of holds and requests that are not all alike.
const (
	Read = "read" // beside others
	Down = "down" // counts down
	Wait = "wait" // for a count to be 0
)

// The outcomes of a release that the rules know.
const (
	Freed   = "freed"    // there was a hold, and it is released
	NotHeld = "not held" // the lock had been lost
)

// Event is something that happened in a process.
type Event struct {
	At      time.Duration // by Now
	Process int
	Hold    int64 `json:",omitempty"` // which of the process's requests, and what it got, from 1; 0 where there is none
	Kind    Kind
	Name    string        `json:",omitempty"` // of the lock
	Mode    string        `json:",omitempty"`
	Owner   string        `json:",omitempty"` // of the hold
	Token   int64         `json:",omitempty"` // of the hold
	Permits int           `json:",omitempty"`
	Until   time.Duration `json:",omitempty"` // by Now; 0 is for ever. Of a request: for how long it waits
	Text    string        `json:",omitempty"`
}

// Parse reads a line that a Log wrote.
func Parse(line []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("locktorture: %q: %w", line, err)
	}
	return e, nil
}

// Log writes the events of one process, each as a line and at once, so that what happened before the process is
// killed is known. Any number of goroutines may use it.
type Log struct {
	process int
	holds   atomic.Int64

	mu sync.Mutex // held while writing to w
	w  io.Writer
}

// NewLog returns a log of the process with that number which writes to w, a pipe to the one that judges.
func NewLog(w io.Writer, process int) *Log { return &Log{process: process, w: w} }

// NextHold returns the number of a further hold.
func (l *Log) NextHold() int64 { return l.holds.Add(1) }

// Add writes an event. Where At is 0 it happens now. What cannot be written is lost: nobody is there to be told.
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

// At converts an instant of time.Now to the clock of the machine. The two clocks are read in one go: where the process
// was stopped in between, they are read again.
func At(t time.Time) time.Duration {
	for {
		before := Now()
		left := time.Until(t)
		if after := Now(); after-before < 100*time.Microsecond {
			return before + left
		}
	}
}
