package lock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Errors that a caller decides by, found with [errors.Is].
var (
	// ErrNotAcquired says that the lock was not to be had: at once for TryLock, since somebody else has it; until the
	// context ended for Lock, to which the server may also have granted it when its lease was over already. It never
	// stands for a server that could not be asked.
	ErrNotAcquired = errors.New("lock: not acquired")

	// ErrNotHeld says that there was nothing to release: the lock had been lost before, or was never this owner's.
	ErrNotHeld = errors.New("lock: not held")

	// ErrUncertain says that a release, or another change, was not confirmed. It goes on being repeated in the background
	// until it is confirmed or the lease has ended; what has no lease, for five minutes.
	ErrUncertain = errors.New("lock: not confirmed")

	// ErrLost is what every [*LostError] is. From TryLock or Lock it says that the server granted the lock, but that its
	// answer took longer than the lease; the grant is taken back.
	ErrLost = errors.New("lock: lost")

	// ErrReleased is the cause of a lease's context after Unlock, and the Err of the lease.
	ErrReleased = errors.New("lock: released")

	// ErrClosed says that the Client has been closed.
	ErrClosed = errors.New("lock: client closed")

	// ErrInvalid says that what was asked for cannot work: an empty name, a name whose braces break its hash tag, a
	// lease that is too short, an Owner of another Client.
	ErrInvalid = errors.New("lock: invalid")

	// ErrUpgrade says that an Owner asked for a write lock while it has the read lock of the same name: it would wait for
	// itself. Release the read lock first.
	ErrUpgrade = errors.New("lock: the owner has the read lock, and would wait for itself")

	// ErrNotReplicated is what every [*NotReplicatedError] is.
	ErrNotReplicated = errors.New("lock: too few replicas have it")

	// ErrReentry says that the Owner has a lock already that it may not take again.
	ErrReentry = errors.New("lock: the owner has it already")

	// ErrNotSet says that nobody has set up the permits of a semaphore, so that waiting for one would not help; or that
	// they have been deleted, or have expired.
	ErrNotSet = errors.New("lock: nobody has set up the permits")

	// ErrWrongType says that the key of the lock holds something that is not this kind of lock. It is left alone. On the server
	// Reentrant, NonReentrant, Spin, Fenced, Fair and NonReentrantFair locks are the same hash, so that those of one name exclude
	// each other; so do the two halves of a ReadWrite lock. A Semaphore and a CountDownLatch are a number both.
	ErrWrongType = errors.New("lock: the key holds something else")
)

// Reason says why a lock was lost.
type Reason int

const (
	// Expired: the lease ended before the lock was released or renewed.
	Expired Reason = iota + 1
	// Taken: the server says that somebody else has the lock.
	Taken
	// Forced: the lock was removed before its lease could have ended: by ForceUnlock, by deletion of its key, or by a
	// server that lost its data.
	Forced
	// Unreachable: the server could not be asked to renew the lease before it ended.
	Unreachable
	// ClockJump: the machine slept, or its clock was moved, past the end of the lease.
	ClockJump
	// ClientClosed: the Client was closed while the lock was held, so nobody renews or watches it any more.
	ClientClosed
	// PartLost: a lock that was taken together with this one is lost, or so many of them that the rest is not enough. The
	// server keeps this one until Unlock, or until its lease ends.
	PartLost
)

var reasons = [...]string{
	Expired:      "its lease ended",
	Taken:        "taken by another owner",
	Forced:       "removed before its lease ended",
	Unreachable:  "the server could not be reached to renew it",
	ClockJump:    "the machine slept past the end of its lease",
	ClientClosed: "the client was closed",
	PartLost:     "another part of it was lost",
}

// String returns the reason in words.
func (r Reason) String() string {
	if r < Expired || int(r) >= len(reasons) {
		return "unknown"
	}
	return reasons[r]
}

// LostError tells the holder of a lock that it is lost, and why. It is an [ErrLost].
type LostError struct {
	Name   string // of the lock; not part of the text
	Reason Reason
	Err    error // what went wrong at the last renewal, or what the key holds instead; or nil
}

// Error returns the reason in words.
func (e *LostError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: %v: %v", ErrLost, e.Reason, e.Err)
	}
	return fmt.Sprintf("%v: %v", ErrLost, e.Reason)
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns what went wrong at the last renewal.
func (e *LostError) Unwrap() error { return e.Err }

// NotReplicatedError says that too few replicas of the server had the lock in time. The acquire is undone. It is an
// [ErrNotReplicated]. TryLock returns it at once, Lock goes on for as long as its context allows.
type NotReplicatedError struct {
	Name          string        // of the lock
	Server        string        // its address, as far as it is known
	Needed, Acked int           // replicas
	Within        time.Duration // for how long they were waited for, at most
	Err           error         // why it needed so many, or nil
}

// Error tells all of that.
func (e *NotReplicatedError) Error() string {
	text := fmt.Sprintf("%v: %d of %d within %v, of %q", ErrNotReplicated, e.Acked, e.Needed, e.Within, e.Name)
	if e.Server != "" {
		text += " on " + e.Server
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is [ErrNotReplicated].
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// Unwrap returns why it needed so many.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// serverError is an error of a script or command as a caller of this package should see it. Servers before Redis 7 hide
// what went wrong in a script behind another prefix.
func serverError(err error) error {
	reply, _ := errors.AsType[resp.Error](err)
	switch class := resp.Error(reply.Class()); {
	case wrongType(reply):
		return fmt.Errorf("%w: %w", ErrWrongType, err)
	case string(class) != reply.Prefix():
		return fmt.Errorf("lock: %w: %w", class, err)
	}
	return fmt.Errorf("lock: %w", err)
}

// wrongType reports whether reply says that a key holds another type, in the words of whichever server.
func wrongType(reply resp.Error) bool {
	return strings.Contains(string(reply), string(resp.ErrWrongType)+" ")
}

// uncertain reports whether the server may have run what err was returned for.
func uncertain(err error) bool {
	if errors.Is(err, conn.ErrUncertain) {
		return true
	}
	if _, answered := errors.AsType[resp.Error](err); answered {
		return false
	}
	return !conn.SafeToRetry(err)
}

// passing reports whether err says nothing about the lock and may be gone a moment later: the server could not be
// reached, or is not ready.
func passing(err error) bool {
	if errors.Is(err, conn.ErrClosed) {
		return false
	}
	if errors.Is(err, conn.ErrUncertain) || errors.Is(err, ErrLost) || errors.Is(err, ErrNotReplicated) { // granted in vain
		return true
	}
	reply, answered := errors.AsType[resp.Error](err)
	switch {
	case !answered:
		return errors.Is(err, conn.ErrNotSent) && !errors.Is(err, conn.ErrRefused) && netfail.Dial(err) != netfail.Final
	case netfail.Denied(reply):
		return false
	case errors.Is(reply, resp.ErrMoved), errors.Is(reply, resp.ErrAsk):
		return true
	}
	return netfail.Reply(reply) != netfail.Final || netfail.Reply(resp.Error(reply.Class())) != netfail.Final
}

// final reports whether err, of a release or an undo, would be the same at every repeat. A server that is out of memory or
// has lost its replicas may do later what it refuses now.
func final(err error) bool {
	if uncertain(err) {
		return false
	}
	reply, answered := errors.AsType[resp.Error](err)
	if !answered {
		return errors.Is(err, conn.ErrClosed)
	}
	return netfail.Denied(reply) || wrongType(reply)
}
