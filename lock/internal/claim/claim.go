// Package claim is the agreement between a waiter and a releasing holder on a hand-over. [Series] counts hand-overs in a row.
//
//	          Offer            Claim           Deliver
//	active ----------> offered ------> claimed -------> delivered
//	  ^                   |               |                 |
//	  |<----- Withdraw ---+               +-- Abandon --> abandoned
//	  +<----------------------- Take -----------------------+
//
// Invariants:
//
//   - At most one holder claims an offer, and it delivers exactly once.
//   - The waiter changes its request only while the Claim is active. The holder reads it only between Claim and the end of Deliver.
//   - An abandoned Claim stays abandoned. Its holder learns of it from Deliver, and undoes the hand-over.
package claim

import "sync/atomic"

const (
	active    uint32 = iota // the waiter acts itself, or may not get the lock by a hand-over
	offered                 // the holder may hand the lock over
	claimed                 // a hand-over is under way
	delivered               // the outcome is known
	abandoned               // an outcome may still arrive, but the waiter has left
)

// Claim is a waiter's part in hand-overs, with outcomes of type T. The zero Claim is active. The waiter calls Offer, Withdraw,
// Abandon and Take, the holder Claim, Over and Deliver.
type Claim[T any] struct {
	state   atomic.Uint32
	outcome *T              // valid in state delivered
	over    <-chan struct{} // closed when the waiter gives up; changes only in state active
}

// Offer allows a hand-over, until over is closed. It has no effect unless the Claim is active.
func (c *Claim[T]) Offer(over <-chan struct{}) {
	if c.state.Load() == active {
		c.over = over
		c.state.Store(offered)
	}
}

// Withdraw ends an offer that no holder has claimed, and reports whether the Claim is active.
func (c *Claim[T]) Withdraw() bool {
	return c.state.Load() == active || c.state.CompareAndSwap(offered, active)
}

// Claim takes an offer, and reports whether there was one.
func (c *Claim[T]) Claim() bool { return c.state.CompareAndSwap(offered, claimed) }

// Over reports whether the waiter of a claimed offer is about to give up.
func (c *Claim[T]) Over() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// Deliver passes the outcome to the waiter, and reports false if the waiter has left.
func (c *Claim[T]) Deliver(outcome *T) bool {
	c.outcome = outcome
	return c.state.CompareAndSwap(claimed, delivered)
}

// Delivered reports whether there is an outcome to take.
func (c *Claim[T]) Delivered() bool { return c.state.Load() == delivered }

// Abandon leaves a hand-over under way to its holder, and reports false if none is under way.
func (c *Claim[T]) Abandon() bool { return c.state.CompareAndSwap(claimed, abandoned) }

// Abandoned reports whether the waiter has left a hand-over under way.
func (c *Claim[T]) Abandoned() bool { return c.state.Load() == abandoned }

// Take returns a delivered outcome. The Claim is active again.
func (c *Claim[T]) Take() *T {
	outcome := c.outcome
	c.state.Store(active)
	return outcome
}
