package main

import "time"

// assignment is the first thing a worker reads from its standard input. It comes that way since it may hold a password.
type assignment struct {
	URL     string
	Lock    string // name of the lock
	Counter string // key of what it guards
	Lease   time.Duration
}

// order is every further thing it reads: how to work, from the first one on. The end of the input is the order to finish
// and end.
type order string

const (
	takeTurns order = "turns"  // work for some time under the lock, rest, and again
	stay      order = "stay"   // at the next acquisition read the counter, and hold the lock until the end
	sprint    order = "sprint" // as fast as possible
)

// report is what a worker writes to its standard output, one JSON object a line. Times are of the wall clock, the only
// one that processes share.
type report struct {
	Kind  string
	At    time.Time
	Asked time.Time `json:",omitzero"` // acquired: when it called Lock
	Owner string    `json:",omitempty"`
	Holds int64     `json:",omitempty"` // acquired: how many times it has taken the lock
	Value int64     `json:",omitempty"` // acquired: the counter as it was; released: as it wrote it
	Wrote bool      `json:",omitempty"` // released: it has incremented the counter
	Stays bool      `json:",omitempty"` // acquired: under the order to stay
	Text  string    `json:",omitempty"` // failed: why
}

const (
	ready    = "ready"    // connected; Owner is the identity of its client
	acquired = "acquired" // At is after Lock returned
	released = "released" // At is before Unlock was called, which has succeeded since
	failed   = "failed"   // the worker ends
)

// now is the time as other processes see it: without the reading of the monotonic clock, which is each one's own.
func now() time.Time { return time.Now().Round(0) }
