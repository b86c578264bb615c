package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// NotAcquiredError is the error of a call that has not acquired the lock, because another owner has the lock or because
// the context of the call has ended. It matches [ErrNotAcquired], unless the context ended without any answer of the
// server, or with too few acknowledgements by replicas; then it matches the failure instead, such as
// [ErrNotReplicated]. After the end of a context it always matches the context's error and cause.
type NotAcquiredError struct {
	Name   string        // of the lock; of a [Multi] of the member that was refused, if known
	Kind   string        // see [Lease.Kind]
	Waited time.Duration // 0 for a call that does not wait
	// Remaining is the remaining lease of the Holder or, without one, the time until it is worth asking again, as last
	// reported by the server; 0 if unknown. The holder may extend the lease.
	Remaining time.Duration
	// Holder is an owner of the lock: in this process, with HeldFor, the age of its lease; or elsewhere, as the server said
	// HolderSeen ago. A waiter asks once, at most 200 ms before the deadline of its context, which it never exceeds for this.
	// Holder is the value of a [Plain] lock, of a [PermitSemaphore] the id of the permit whose lease ends first, of a [Multi]
	// the holder of the lock Name, and of a [Redlock] an owner in the process that has the lock on most of the servers.
	// Holder is "" if unknown: for a call that does not wait, a wait that is cancelled or shorter than 60 ms, and for a
	// [Semaphore], whose server does not know the holders. [Client.Inspect] finds any other holder.
	Holder     string
	HeldFor    time.Duration
	HolderSeen time.Duration
	// Process is the name of the process with a Holder elsewhere, the Config.Name of its Client; "" if unknown, as for Plain
	// locks and permits. Names are looked up at most once a minute, on a server with up to 1000 connections.
	Process string
	Err     error // the end of the context, with the failure of the server if any; nil if another owner has the lock

	shown   string    // in place of Name in the text
	seen    time.Time // the time of HolderSeen
	unasked bool      // Err has the reason: does not match ErrNotAcquired
}

// Error names the lock, the time waited, Err, and the holder as far as known.
func (e *NotAcquiredError) Error() string {
	var b strings.Builder
	b.WriteString(subject(e.Name, e.shown) + "not acquired")
	if e.Waited > 0 {
		fmt.Fprintf(&b, " after %v", roughly(e.Waited))
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	switch {
	case e.Holder != "" && e.HolderSeen == 0:
		fmt.Fprintf(&b, "; held by %s of this process for %v", e.Holder, roughly(e.HeldFor))
	case e.Process != "":
		fmt.Fprintf(&b, "; held by %s (%s) %v ago", e.Process, e.Holder, roughly(e.HolderSeen))
	case e.Holder != "":
		fmt.Fprintf(&b, "; held by %s %v ago", e.Holder, roughly(e.HolderSeen))
	}
	if e.Remaining > 0 {
		fmt.Fprintf(&b, "; the lease has %v left", roughly(e.Remaining))
	}
	return b.String()
}

// Is reports whether target is [ErrNotAcquired], with the exceptions of the type.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired && !e.unasked }

// Unwrap returns Err.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// notAcquired returns the error for r.
func (r *request) notAcquired(err error) *NotAcquiredError {
	c := r.client
	t := r.target
	e := &NotAcquiredError{Name: t.name, Kind: t.kind.Name, Err: err, shown: c.log.Shown(t.name)}
	if !r.since.IsZero() {
		e.Waited = time.Since(r.since)
	}
	if r.ends > 0 {
		e.Remaining = max(0, r.ends-c.clocks.Age())
	}
	held, seen := r.holders()
	switch {
	case held != nil: // its lease may have been renewed since the refusal
		e.Holder, e.HeldFor, e.Remaining = held.Owner(), held.age(), max(0, time.Until(held.serverEnd()))
	case seen != nil && !r.since.IsZero() && seen.at.After(r.since):
		e.heldBy(seen)
	}
	return e
}

// holders returns a lease of this process that is in the way of r, and the last answer about a holder elsewhere; nil for none.
func (r *request) holders() (held *Lease, seen *seenHolder) {
	c, t := r.client, r.target
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	seen = r.holder
	if waits := c.table.entries[t.key()]; seen == nil && waits != nil {
		seen = waits.seen // by the waiter in front
	}
	return c.ownLocked(t), seen
}

// heldBy names a holder elsewhere.
func (e *NotAcquiredError) heldBy(seen *seenHolder) {
	e.Holder, e.Process, e.HeldFor, e.seen = seen.owner, seen.process, 0, seen.at
	e.HolderSeen = max(time.Since(seen.at), 1)
	if seen.left != 0 { // a refusal may tell the end of a turn instead
		e.Remaining = max(0, seen.left-e.HolderSeen)
	}
}

// noteLeft records the remaining lease of a lock that the server has refused.
func (r *request) noteLeft(left time.Duration) {
	c := r.client
	if r.ends = 0; left > 0 && !r.target.kind.queued && !r.target.kind.unowned {
		r.ends = c.clocks.Age() + left
	}
}

// gaveUp returns the error of a call that ended with ctx or with the client.
func (r *request) gaveUp(ctx context.Context) error {
	c := r.client
	if c.isClosed() {
		return ErrClosed
	}
	e := r.notAcquired(ended(ctx))
	switch {
	case r.short != nil:
		e.Err, e.unasked = fmt.Errorf("%w: %w", r.short, e.Err), true
	case r.refused:
	case r.failure != nil && !errors.Is(r.failure, e.Err):
		e.Err, e.unasked = fmt.Errorf("%w, and the server could not be asked: %w", e.Err, unnamed(r.failure)), true
	case r.failure != nil:
		e.Err, e.unasked = unnamed(r.failure), true
	}
	return e
}

// end completes the error of a wait for several locks.
func (e *NotAcquiredError) end(ctx context.Context, since time.Time, refused bool, last error) {
	e.Err, e.unasked = ended(ctx), false
	if !e.seen.IsZero() {
		e.HolderSeen = max(time.Since(e.seen), 1)
	}
	if !since.IsZero() {
		e.Waited = time.Since(since)
	}
	if !refused && last != nil && !errors.Is(last, ErrNotAcquired) {
		e.Err, e.unasked = fmt.Errorf("%w, and the server could not be asked: %w", e.Err, last), true
	}
}

// grantedLate returns the error for a grant of t that arrived after the end of its lease.
func (t *target) grantedLate(c *Client) *LostError {
	return &LostError{Name: t.name, Kind: t.kind.Name, Reason: Expired, shown: c.log.Shown(t.name)}
}
