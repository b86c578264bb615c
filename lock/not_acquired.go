package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/resp"
)

// NotAcquiredError is the error of a call that has not acquired the lock, because another owner has the lock or because
// the context of the call has ended. It matches [ErrNotAcquired], unless the context ended without any answer of the
// server, or with too few acknowledgements by replicas; then it matches the failure instead, such as
// [ErrNotReplicated]. A call whose context had ended before asks no server, and its error matches ErrNotAcquired. After the end of a
// context the error always matches the context's error and cause.
type NotAcquiredError struct {
	Name   string        // of the lock; of a [Multi] of the member that was refused, if known
	Kind   string        // see [Lease.Kind]
	Waited time.Duration // since the first attempt, without its time; 0 for a call that does not wait
	// Remaining is the remaining lease of the Holder or, without one, the time until it is worth asking again, as last
	// reported by the server; 0 if unknown. The holder may extend the lease.
	Remaining time.Duration
	// Holder is an owner of the lock: in this process, with HeldFor, the age of its lease; or elsewhere, as the server said
	// HolderSeen ago. A waiter asks once, at most 200 ms before the deadline of its context, which it never exceeds for this.
	// Holder is the value of a [Plain] lock, of a [PermitSemaphore] the id of the permit whose lease ends first, of a [Multi]
	// the holder of the lock Name, and of a [Redlock] an owner in this process, else the owner on the server at which the call waits.
	// Holder is "" if unknown: for a call that does not wait, a wait that is cancelled or shorter than 60 ms, and for a
	// [Semaphore], whose server does not know the holders. [Client.Inspect] finds any other holder.
	Holder     string
	HeldFor    time.Duration
	HolderSeen time.Duration
	// Process is the name of the process with a Holder elsewhere, the Config.Name of its Client; "" if unknown, as for Plain
	// locks and permits. Names are looked up at most once a minute, on a server with up to 1000 connections.
	Process string
	// HolderErr is the error of the question for the Holder, if the server has not answered it.
	HolderErr error
	Err       error // the end of the context, with the failure of the server if any; nil if another owner has the lock

	log     *logs.Log // what stands for Name in the text; nil for the name
	seen    time.Time // the time of HolderSeen
	unasked bool      // Err has the reason: does not match ErrNotAcquired
	untried bool      // the context had ended before the first attempt
}

// Error names the lock, the time waited, Err, and the holder as far as known.
func (e *NotAcquiredError) Error() string {
	var b strings.Builder
	b.WriteString(subject(e.Name, e.log) + "not acquired")
	if waited := roughly(e.Waited); waited > 0 {
		fmt.Fprintf(&b, " after %v", waited)
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
	case e.HolderErr != nil:
		return b.String() + "; its holder is unknown: " + e.HolderErr.Error()
	}
	switch {
	case e.Remaining <= 0:
	case e.Holder != "":
		fmt.Fprintf(&b, "; the lease has %v left", roughly(e.Remaining))
	default: // the end of a lease, or of a turn, or of the time for which callers wait uncalled
		fmt.Fprintf(&b, "; worth asking again in %v", roughly(e.Remaining))
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
	e := &NotAcquiredError{Name: t.Name, Kind: t.kind.Name, Err: err, log: c.log}
	if !r.since.IsZero() {
		e.Waited = time.Since(r.since)
	}
	if r.why.leaseEnds > 0 {
		e.Remaining = max(0, r.why.leaseEnds-c.clocks.Age())
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
	seen = r.why.holder
	if waits := c.table.entries[t.awaitedAs()]; seen == nil && waits != nil {
		seen = waits.seen // by the waiter in front
	}
	if e := c.table.entries[t.heldAs()]; e != nil && len(e.leases) > 0 && !t.kind.divisible { // others may be in the way of a lease with parts, too
		held = e.leases[len(e.leases)-1]
	}
	return held, seen
}

// heldBy names a holder elsewhere, as far as known.
func (e *NotAcquiredError) heldBy(seen *seenHolder) {
	if e.HolderErr = seen.err; seen.owner == "" {
		return
	}
	e.Holder, e.Process, e.HeldFor, e.seen = seen.owner, seen.process, 0, seen.at
	e.HolderSeen = max(time.Since(seen.at), 1)
	if seen.left != 0 { // a refusal may tell the end of a turn instead
		e.Remaining = max(0, seen.left-e.HolderSeen)
	}
}

// noteRefusal records a refusal by the server, with the remaining lease of the lock.
func (r *request) noteRefusal(left time.Duration) {
	c := r.client
	r.why.refuse()
	if r.why.leaseEnds = 0; left > 0 && !r.target.kind.queued() && !r.target.kind.unowned() {
		r.why.leaseEnds = c.clocks.Age() + left
	}
}

// gaveUp returns the error of a call that ended with ctx or with the client.
func (r *request) gaveUp(ctx context.Context) error {
	c := r.client
	if c.isClosed() {
		return ErrClosed
	}
	e := r.notAcquired(netfail.Ended(ctx))
	switch why := &r.why; {
	case why.refused():
	case why.answer != nil:
		e.Err, e.unasked = fmt.Errorf("%w: %w", why.answer, e.Err), true
	case why.failure != nil && !errors.Is(why.failure, e.Err):
		e.noAnswer(unnamed(why.failure))
	case why.failure != nil:
		e.Err, e.unasked = unnamed(why.failure), true
	default:
		e.untried = true
	}
	return e
}

// noAnswer adds to the end of the context why there has been no answer by then.
func (e *NotAcquiredError) noAnswer(failure error) {
	e.Err, e.unasked = fmt.Errorf("%w, and the server could not be asked: %w", e.Err, failure), true
}

// waited is the record of a wait for a Multi or Redlock.
type waited struct {
	since   time.Time // zero for a call that does not wait
	refused bool      // another caller wants the lock or has it
	failure error     // of the last attempt that failed without a refusal; nil for none
	standby bool      // see Standby
	warned  bool      // the log has the wait

	last *NotAcquiredError // of an attempt, with the holder of its lock if ever known
}

// note records the error of an attempt, nil for none, and reports whether the attempt has asked a server.
func (w *waited) note(err error) (asked bool) {
	e, ok := errors.AsType[*NotAcquiredError](err)
	switch {
	case ok && e.untried:
		return false
	case ok && !e.unasked:
		w.refused = true
	case err != nil:
		w.failure = err
	}
	if ok {
		last, before := *e, w.last
		if e.Holder == "" && before != nil && before.Name == e.Name && !before.seen.IsZero() {
			last.heldBy(&seenHolder{owner: before.Holder, process: before.Process, at: before.seen})
		}
		w.last = &last
	}
	return true
}

// warn reports the wait of a call of c once, after WarnAfter, with what e knows of the lock that it waits for.
func (w *waited) warn(c *Client, e *NotAcquiredError) {
	since := time.Since(w.since)
	if w.warned || !c.waitsLong(since+1, w.standby) {
		return
	}
	w.warned = true
	held := &seenHolder{owner: e.Holder, process: e.Process, err: e.HolderErr}
	if held.owner != "" && e.seen.IsZero() { // in this process
		held.process = c.cfg.Name
	}
	c.warnWaiting(e.Name, e.Kind, "", since, held)
}

// end completes e, the error of a wait that ended with ctx, or with c.
func (w *waited) end(ctx context.Context, c *Client, e *NotAcquiredError) error {
	if c.isClosed() {
		return ErrClosed
	}
	e.Err, e.unasked = netfail.Ended(ctx), false
	if !e.seen.IsZero() {
		e.HolderSeen = max(time.Since(e.seen), 1)
	}
	if !w.since.IsZero() {
		e.Waited = time.Since(w.since)
	}
	if !w.refused && w.failure != nil {
		e.noAnswer(w.failure)
	}
	return e
}

// expiredGrant returns the error for a grant of t that arrived after the end of its lease.
func (t *target) expiredGrant(c *Client) *LostError {
	return &LostError{Name: t.Name, Kind: t.kind.Name, Reason: Expired, log: c.log}
}

// about is an error about a lock, named in its text.
type about struct {
	subject string
	err     error
}

func (e *about) Error() string { return e.subject + strings.TrimPrefix(e.err.Error(), "lock: ") }
func (e *about) Unwrap() error { return e.err }

// about names the lock in an error; nil stays nil. A node of a cluster that sends a client of a single server elsewhere is named
// too.
func (c *Client) about(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, spread := c.server.(Spread); !spread && errors.Is(err, resp.ErrMoved) {
		err = fmt.Errorf("%w: the server is a node of a cluster, for cluster.Open or redis-cluster://", err)
	}
	return &about{subject(name, c.log), err}
}

func (c *Client) invalid(name, format string, args ...any) error {
	return c.about(name, invalidf(format, args...))
}

// failed is the error of a script or command about a lock.
func (c *Client) failed(name string, err error) error { return c.about(name, serverError(err)) }

// unnamed returns the error within one that names the lock.
func unnamed(err error) error {
	if e, ok := err.(*about); ok {
		return e.err
	}
	return err
}
