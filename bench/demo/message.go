package main

import "time"

// assignment is the first message to a worker, on standard input because of a possible password.
type assignment struct {
	URL     string
	Lock    string // name of the lock
	Counter string // key of the counter
	Lease   time.Duration
}

// order is every further message to a worker: how to work, from the first order on. The end of the input is the order to finish
// and end.
type order string

const (
	takeTurns order = "turns"  // work for some time under the lock, rest, and again
	stay      order = "stay"   // at the next acquisition read the counter, and hold the lock until the end
	sprint    order = "sprint" // as fast as possible
)

// report is a worker's message on standard output, a JSON object per line. Times are of the wall clock, the only clock common
// to processes.
type report struct {
	Kind  string
	At    time.Time
	Asked time.Time `json:",omitzero"` // acquired: the time of the call of Lock
	Owner string    `json:",omitempty"`
	Holds int64     `json:",omitempty"` // acquired: number of acquires so far
	Value int64     `json:",omitempty"` // acquired: the counter before; released: the counter as written
	Wrote bool      `json:",omitempty"` // released: the counter was incremented
	Stays bool      `json:",omitempty"` // acquired: under the order to stay
	Text  string    `json:",omitempty"` // failed: why
}

const (
	ready    = "ready"    // connected; Owner is the identity of the worker's client
	acquired = "acquired" // At is after Lock returned
	released = "released" // At is before the call of Unlock, which has succeeded since
	failed   = "failed"   // the worker ends
)

// now is the time for all processes: without the reading of the monotonic clock, private to each process.
func now() time.Time { return time.Now().Round(0) }
