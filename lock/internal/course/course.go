// Package course decides the next step of a release after each request. All requests of a release share a latch: the key under which the server
// keeps the outcome for repeats. Without the latch a further release could end a second hold of an Owner. So if the latch may be missing, the
// next request is an undo, a script for setting the number of holds.
//
//	Unsent -> Sent -> Open -> Unlatched -> Uncounted -> Settled
//
// The state goes forward only, and may pass over others: see "The release as a state machine" in DESIGN.md.
package course

import (
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// LatchLife is how long the server keeps the outcome of a release; in Redisson 16 to 20 s. The number is in reentrant_single.lua, too.
const LatchLife = 20 * time.Second

// State describes the requests so far.
type State uint8

const (
	Unsent    State = iota // no request
	Sent                   // all requests but the last were answered, and have changed nothing
	Open                   // a request without an answer may still run; the latch tells a repeat
	Unlatched              // a request may have run in part, without setting the latch
	Uncounted              // given up: the client has stopped counting the hold, the server may not have
	Settled                // final outcome
)

// Step is the next step after a request, or the meaning of a reply regardless of earlier requests.
type Step uint8

const (
	RepeatLater Step = iota // in the background
	RepeatNow               // at once, by a caller with time left
	Released                // success
	NotHeld                 // the lock was lost before
	Lost                    // the same; the reply concerns another lease
	Uncertain               // the hold has ended, by the release or before
	Undone                  // the same; the Owner's other holds go on
	Refused                 // for good
)

// Settles reports whether s is the end of the release.
func (s Step) Settles() bool { return s > RepeatNow }

// Course is the course of a release.
type Course struct {
	Latches
	outcome       error
	since         clock.Instant // the time before the last request; from Open on, before the first request without an answer
	state         State
	undo          bool // the last request was an undo
	RanApart      bool // set by the sender of a request without a latch, in a migrating slot
	Owned, Reused bool // an Owner has the hold; the Owner may have other holds, now or later. Constant
}

// Ask begins a request at the time at, and reports whether the request must be an undo.
func (c *Course) Ask(at clock.Instant) (undo bool) {
	if c.state < Open {
		c.state, c.since = Sent, at
	}
	c.undo = c.MustUndo(at)
	return c.undo
}

// Next returns the next step after a request, at the time at: after err or, if err is nil, after a reply with the meaning alone.
func (c *Course) Next(alone Step, err error, at clock.Instant) Step {
	switch {
	case err != nil && remote.Uncertain(err):
		c.state = max(c.state, Open)
		part := netfail.DeniedInside(err)
		if part {
			c.state = max(c.state, Unlatched)
		}
		if c.undo {
			c.Unsure(part)
		} else {
			c.Arrives = true
		}
		if !c.MustUndo(at) {
			return RepeatNow
		}
		return RepeatLater
	case err != nil && remote.Hopeless(err) && !(c.Reused && c.MayRun()): // else an earlier request might end a later hold of the Owner
		return Refused
	case err != nil:
		return RepeatLater
	case c.undo && !c.Answered():
		return RepeatNow
	case c.undo: // the reply does not tell whether an earlier request has released the hold
		return Undone
	case alone == RepeatLater: // an unexpected reply
		c.state = max(c.state, Open)
	case alone == NotHeld && c.MayRun() && c.latchMayMiss(at):
		return Uncertain
	}
	return alone
}

// MayRun reports whether an earlier request may have run, or may still run. Of a settled release it counts as such.
func (c *Course) MayRun() bool { return c.state >= Open }

// NoLatch reports whether a request may have run without leaving a latch.
func (c *Course) NoLatch() bool { return c.RanApart || c.state >= Unlatched }

// latchMayMiss reports whether a repeat might miss the latch of an earlier request that has run. Time asleep counts.
func (c *Course) latchMayMiss(at clock.Instant) bool {
	return c.NoLatch() || c.state == Open && c.since.Elapsed(at) > LatchLife/2
}

// MustUndo reports whether a further release could end a second hold of the Owner.
func (c *Course) MustUndo(at clock.Instant) bool { return c.Owned && c.latchMayMiss(at) }

// GiveUp ends the requests, and reports whether the client counts a hold that may have ended.
func (c *Course) GiveUp() (counted bool) {
	c.Latches = Latches{Latch: c.Latch}
	return c.state == Open || c.state == Unlatched
}

// Uncount notes that the client does not count the hold any more.
func (c *Course) Uncount() { c.state = Uncounted }

// Settle makes outcome final.
func (c *Course) Settle(outcome error) { c.state, c.outcome = Settled, outcome }

// Settled reports whether the release is settled, and returns its outcome.
func (c *Course) Settled() (outcome error, ok bool) { return c.outcome, c.state == Settled }

// State returns the state.
func (c *Course) State() State { return c.state }
