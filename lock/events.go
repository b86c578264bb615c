package lock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
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

// errStopped: the caller of Watch wants no further events.
var errStopped = errors.New("lock: stopped")

// run yields events until an error ends the watch.
func (w *watcher) run(ctx context.Context, yield func(Event, error) bool) error {
	w.yield = yield
	again := time.NewTicker(watchPause)
	defer again.Stop()
	settled := time.After(0) // nil without news
	if err := w.follow(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-w.wake:
			if settled == nil {
				settled = time.After(settleFor)
			}
			continue // changes of the next moments come along
		case <-settled:
			settled = nil
		case <-again.C:
			if err := w.checkServers(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.client.done:
			return ErrClosed
		}
		if err := w.step(ctx); err != nil {
			return err
		}
		if settled == nil && w.waiting() {
			settled = time.After(settleFor)
		}
	}
}

// checkServers listens to new servers and, now and then, asks all servers for their settings.
func (w *watcher) checkServers(ctx context.Context) error {
	if err := w.follow(ctx); err != nil || time.Since(w.checked) < recheckEvery {
		return err
	}
	_, err := w.askAgain(ctx)
	return w.fatalOrMiss(ctx, err)
}

// step yields what has happened. An error is final.
func (w *watcher) step(ctx context.Context) error {
	for {
		n := w.take(time.Now())
		if n.failed != nil {
			return n.failed
		}
		if n.missed > 0 || n.lost != nil && !w.behind {
			w.behind = true
			if !w.yield(Event{What: EventMissed, At: time.Now(), Missed: n.missed, Err: n.lost}, nil) {
				return errStopped
			}
		}
		var err error
		switch {
		case n.scan:
			err = w.scan(ctx)
		case len(n.notes) > 0:
			err = w.lookAtChanged(ctx, n.notes)
		default:
			return nil
		}
		if err != nil { // unless it is final, all begins again at the next tick
			return w.fatalOrMiss(ctx, err)
		}
	}
}

func (w *watcher) fatal(ctx context.Context, err error) bool {
	if errors.Is(err, errStopped) || ctx.Err() != nil || w.client.isClosed() || errors.Is(err, conn.ErrClosed) || remote.Final(err) {
		return true
	}
	return errors.Is(err, conn.ErrNotSent) && !temporary(err) // no later dial would succeed either
}

// scan compares what the watcher knows with all locks on the servers.
func (w *watcher) scan(ctx context.Context) error {
	if changed, err := w.askAgain(ctx); changed || err != nil {
		return err // a source that has begun makes the watcher read all locks
	}
	found := make(map[string]*Listed)
	for l, err := range w.client.List(ctx, w.pattern) {
		if err != nil {
			return err
		}
		found[l.Name] = &l
	}
	at := time.Now()
	names := slices.AppendSeq(slices.Collect(maps.Keys(w.known)), maps.Keys(found))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := w.yieldEvents(&note{name: name, last: at}, found[name]); err != nil {
			return err
		}
	}
	w.began, w.behind = true, false
	if !w.yield(Event{What: EventWatching, At: at, Err: w.partial()}, nil) {
		return errStopped
	}
	return nil
}

// lookAtChanged asks for the owners of the locks with news.
func (w *watcher) lookAtChanged(ctx context.Context, notes []*note) error {
	names := make([]string, len(notes))
	for i, n := range notes {
		names[i] = n.name
	}
	locks, err := recognise(remote.Patient(ctx), w.client.server, names)
	if err != nil {
		return err
	}
	found := make(map[string]*Listed)
	for _, l := range locks {
		found[l.Name] = &l
	}
	for _, n := range notes {
		if err := w.yieldEvents(n, found[n.name]); err != nil {
			return err
		}
	}
	return nil
}

// yieldEvents yields the events of a lock, whose state is now l, nil if it is free.
func (w *watcher) yieldEvents(n *note, l *Listed) error {
	before, after := w.known[n.name], ownersOf(l)
	if w.known[n.name] = after; len(after.owners) == 0 && after.former == "" {
		delete(w.known, n.name)
	}
	for _, ev := range n.events(before, after, w.partial() == nil) {
		if !w.began {
			ev.What = EventHeld
		}
		if !w.yield(ev, nil) {
			return errStopped
		}
	}
	return nil
}
