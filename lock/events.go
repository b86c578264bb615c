package lock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"
)

// EventKind is what an [Event] tells.
type EventKind string

const (
	EventHeld     EventKind = "held"     // the lock was held when Watch began
	EventWatching EventKind = "watching" // all locks held now are told; Err is why further events will be missing, or nil
	EventAcquired EventKind = "acquired" // a new owner has the lock
	EventReleased EventKind = "released" // an owner has released the lock
	EventForced   EventKind = "forced"   // the lock was taken from its owner: by ForceUnlock, DEL, or an eviction
	EventExpired  EventKind = "expired"  // the lease ended without a release
	EventMissed   EventKind = "missed"   // events were lost, reported once until the next EventWatching, with which all locks held are known again
)

// Event is a change of a lock on the server.
type Event struct {
	What  EventKind
	Name  string // of the lock; "" for EventWatching and EventMissed
	Shape Shape  // "" if unknown
	Owner string // as in [Holder]; "" if unknown
	// At is the time, by the clock of this process, at which the news of the change arrived.
	At time.Time
	// Missed is the number of messages dropped because the caller of Watch was slow; 0 if only Err tells why events
	// were lost.
	Missed int
	Err    error // of EventWatching and EventMissed
}

// Watch yields what happens to the locks with names matching pattern, a glob of the server ("orders:*"); "" matches all
// names. The locks are those that [Client.List] finds, of all clients including Redisson's. Watch begins with an EventHeld
// for each owner and one EventWatching, and ends with the context (its cause is the error), with the Client (ErrClosed),
// or when the server refuses a command or a subscription, or no connection for a lasting reason, such as a certificate that does not
// verify.
//
// Watch learns of changes from two sources:
//
//   - Events of keys, if the server's notify-keyspace-events has K and g, $, h, x, e (or A) for all databases: all kinds of events.
//   - The messages that wake waiters: only releases and forced unlocks, of a single server or with [PublishPlain], and not of
//     [Plain] and [Spin] locks, nor of a fair lock that nobody waits for. A change of the permits of a semaphore may be told as a
//     release. If the server publishes no events of keys, the next owner of a released lock is told
//     only if Watch finds the lock taken, and an expired lease not at all. EventWatching then has an Err.
//
// A setting by CONFIG SET reaches no replica and no restarted server unless it is in their configuration files too. Watch asks
// again after each interruption of a subscription and every 30 s, and the next EventWatching has an Err if events of keys have
// ended.
//
// After the news of a change Watch waits for a tenth of a second, then asks the server for the owners. Changes in quick
// succession come as one: of two owners in between only the last is told, and the owner of a lock held for less than this
// time may be unknown. An acquire by the owner's next hold and a renewal are no events, nor is a lock passed on inside a process if
// its owner on the server stays the same. Unlock of a lock that [AtLeast] keeps taken is a release, and the end of the rest is no
// event.
// The end of the lease of a permit, or of one of several readers or owners in a [FasterMulti] group, is told with the next change of the
// lock: as a release, or as expired if the last lease ends. A DEL is forced, unless a Plain lock is deleted; so is a release by a
// Redisson without unlock latches. FLUSHALL is no event.
//
// Names beginning like keys that belong to a lock (redisson_lock_token:) have no events. From messages alone Watch cannot
// tell the lock {job} from job, nor {job} followed by a colon and a UUID from both, and tells all as job.
//
// In a cluster Watch listens to each master, and begins again with the present owners after a failover. Changes in the meantime
// are then told with the time of the discovery, and may be missing.
//
// Watch remembers the owners of all matching locks, and up to 10,000 names with changes that the caller has not taken. For
// more, Watch yields EventMissed and reads all locks again. Watch costs the server a message for each change of any
// matching key, and two short scripts for each changed lock. The goroutines of Watch end when the iteration ends.
func (c *Client) Watch(ctx context.Context, pattern string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := c.untilClose(ctx) // a question ends with the Client, too
		defer cancel()
		w := newWatcher(c, cmp.Or(pattern, "*"))
		defer w.close()
		err := w.run(ctx, yield)
		switch {
		case errors.Is(err, errStopped):
		case c.isClosed():
			yield(Event{}, ErrClosed)
		case ctx.Err() != nil:
			yield(Event{}, context.Cause(ctx))
		default:
			yield(Event{}, serverError(err))
		}
	}
}
