package lock

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Errors for decisions of a caller; match them with [errors.Is].
var (
	// ErrNotAcquired: another owner holds the lock (TryLock), or the context ended before the lock was acquired
	// (Lock). In the second case the server may also have granted the lock, but only after the lease had ended. An
	// unreachable server never causes this error. The error is a [*NotAcquiredError], also if the server could not be
	// asked before the context ended.
	ErrNotAcquired = errors.New("lock: not acquired")

	// ErrNotHeld: the lock was lost, or this owner never held it. There was nothing to release.
	ErrNotHeld = errors.New("lock: not held")

	// ErrUncertain: the server has not confirmed a release or another change. The client repeats the change in the
	// background until the server confirms it or the lease has ended; a change without a lease, for five minutes.
	ErrUncertain = errors.New("lock: not confirmed")

	// ErrLost matches every [*LostError]. From TryLock or Lock, ErrLost means that the server granted the lock but
	// the reply took longer than the lease; the client gives the lock back.
	ErrLost = errors.New("lock: lost")

	// ErrReleased is the cause of a lease's context after Unlock, and the Err of the lease.
	ErrReleased = errors.New("lock: released")

	// ErrClosed: the Client is closed.
	ErrClosed = errors.New("lock: client closed")

	// ErrInvalid: the arguments cannot work. Examples are an empty name, a name with braces that break the hash tag,
	// a lease that is too short, and an Owner of another Client.
	ErrInvalid = errors.New("lock: invalid")

	// ErrUpgrade: an Owner asked for a write lock while holding the read lock of the same name, and would wait for
	// itself. Release the read lock first.
	ErrUpgrade = errors.New("lock: the owner has the read lock, and would wait for itself")

	// ErrNotReplicated matches every [*NotReplicatedError].
	ErrNotReplicated = errors.New("lock: too few replicas have acknowledged the lock")

	// ErrReentry: the Owner already has a lock that allows no second hold.
	ErrReentry = errors.New("lock: the owner already has the lock")

	// ErrNotSet: nobody has set up the permits of the semaphore, or the permits have been deleted or have expired.
	// Waiting would not help.
	ErrNotSet = errors.New("lock: no permits have been set")

	// ErrWrongType: the key of the lock holds a value of another kind. The value is left alone.
	//
	// Some kinds share one stored form, and locks of one name and one form exclude each other:
	//
	//   - Reentrant, NonReentrant, Spin, Fenced, Fair and NonReentrantFair are one hash.
	//   - The two halves of a ReadWrite lock are one hash.
	//   - A Semaphore and a CountDownLatch are both a number.
	//
	// A Reentrant or Fair lock finds a ReadWrite lock taken (ErrNotAcquired), and a Plain lock the number of a semaphore.
	ErrWrongType = errors.New("lock: the key holds something else")
)

// Reason is the cause of the loss of a lock.
type Reason int

const (
	// Expired: the lease ended before the lock was released or renewed.
	Expired Reason = iota + 1
	// Taken: the server reports another owner of the lock.
	Taken
	// Forced: the lock was removed before its lease could have ended, by ForceUnlock, by deletion of its key, or by a
	// server that lost its data.
	Forced
	// Unreachable: the server has not renewed the lease before its end: it did not answer, or refused, as the error tells.
	Unreachable
	// ClockJump: the machine slept, or its clock was moved, past the end of the lease.
	ClockJump
	// ClientClosed: the Client was closed while the lock was held, and no longer renews or watches the lock.
	ClientClosed
	// PartLost: a lock taken together with this lock is lost, or so many are lost that the remaining locks are not
	// enough. The server keeps this lock until Unlock, or until the lease ends.
	PartLost
	// HeldTooLong: the lock was held for the time set by [AtMost]. The server keeps the lock until Unlock, or until the lease
	// ends.
	HeldTooLong
	// Ending is the reason of a context that ended by [StopBefore]. The lock is still held.
	Ending
)

var reasons = [...]struct{ label, words string }{
	Expired:      {"expired", "its lease ended"},
	Taken:        {"taken", "taken by another owner"},
	Forced:       {"forced", "removed before its lease ended"},
	Unreachable:  {"unreachable", "it could not be renewed in time"},
	ClockJump:    {"clock_jump", "the machine slept past the end of its lease"},
	ClientClosed: {"client_closed", "the client was closed"},
	PartLost:     {"part_lost", "another part of it was lost"},
	HeldTooLong:  {"held_too_long", "its time by AtMost is over"},
	Ending:       {"ending", "its lease is about to end"},
}

// String returns the reason in words.
func (r Reason) String() string {
	if r < Expired || int(r) >= len(reasons) {
		return "unknown"
	}
	return reasons[r].words
}

// Label returns the reason as a word for metrics, such as "expired".
func (r Reason) Label() string {
	if r < Expired || int(r) >= len(reasons) {
		return "unknown"
	}
	return reasons[r].label
}

// LostError is the loss of a lock, with the reason. A LostError matches [ErrLost].
type LostError struct {
	Name   string        // of the lock
	Kind   string        // see [Lease.Kind]
	Owner  string        // see [Lease.Owner]; "" if the lock was never held, since the grant came too late
	Age    time.Duration // of the lease
	Reason Reason
	// Remaining is the time for which the server may still keep the lock for this owner. Unlock ends it.
	Remaining time.Duration
	Err       error // the error of the last renewal, or the other content of the key; or nil

	log    *logs.Log // what stands for Name in the text; nil for the name
	atMost bool      // with Ending: AtMost is the reason, not a missing renewal
}

// Error names the lock, the age of the lease, and the reason.
func (e *LostError) Error() string {
	text := subject(e.Name, e.log)
	if e.Reason != Ending {
		text += "lost"
		if age := roughly(e.Age); age > 0 {
			text += " after " + age.String()
		}
		text += ": "
	}
	switch {
	case e.atMost:
		return text + "its time by AtMost is nearly over"
	case e.Err != nil:
		return fmt.Sprintf("%s%v: %v", text, e.Reason, e.Err)
	}
	return text + e.Reason.String()
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// NotReplicatedError: too few replicas acknowledged the lock in time, and the acquire is undone. A NotReplicatedError
// matches [ErrNotReplicated]. TryLock returns the error at once; Lock tries again for as long as its context allows.
type NotReplicatedError struct {
	Name          string        // of the lock
	Server        string        // the server's address, if known
	Needed, Acked int           // replicas
	Within        time.Duration // the maximum wait for replicas
	Err           error         // why so many replicas were needed, or nil

	log *logs.Log // what stands for Name in the text; nil for the name
}

// Error names the counts, the time, the lock, the server if known, and Err.
func (e *NotReplicatedError) Error() string {
	text := fmt.Sprintf("%v: %d of %d within %v, of %s", ErrNotReplicated, e.Acked, e.Needed, e.Within, shown(e.Name, e.log))
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

// Unwrap returns Err.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// serverError converts the error of a script or command for callers of this package. Servers before Redis 7 hide the
// cause of a script's failure behind another prefix.
func serverError(err error) error {
	reply, _ := errors.AsType[resp.Error](err)
	switch class := resp.Error(reply.Class()); {
	case remote.WrongType(reply):
		return fmt.Errorf("%w: %w", ErrWrongType, err)
	case string(class) != reply.Prefix():
		return fmt.Errorf("lock: %w: %w", class, err)
	}
	return fmt.Errorf("lock: %w", err)
}

// refusedWork converts the error of a release or a change that is not repeated. Behind a closed connection nothing is known of earlier
// requests.
func refusedWork(err error) error {
	if errors.Is(err, conn.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return serverError(err)
}

// temporary reports whether err is temporary and says nothing about the lock: the server could not be reached, or is
// not ready.
func temporary(err error) bool {
	if errors.Is(err, conn.ErrClosed) {
		return false
	}
	if errors.Is(err, conn.ErrUncertain) || errors.Is(err, ErrLost) || errors.Is(err, ErrNotReplicated) { // granted in vain
		return true
	}
	reply, answered := errors.AsType[resp.Error](err)
	if !answered {
		return errors.Is(err, conn.ErrNotSent) && !errors.Is(err, conn.ErrRefused) && netfail.Dial(err) != netfail.Final
	}
	return remote.NotReady(reply)
}

// roughly rounds a duration for a reader.
func roughly(d time.Duration) time.Duration {
	if d.Abs() < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// subject begins the text of an error about a lock. log may be nil.
func subject(name string, log *logs.Log) string {
	if name == "" && log.Shown("") == "" {
		return "lock: "
	}
	return "lock " + shown(name, log) + ": "
}

// shown returns what stands for the name of a lock in the text of an error.
func shown(name string, log *logs.Log) string { return cmp.Or(log.Shown(name), strconv.Quote(name)) }
