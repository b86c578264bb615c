package lock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

const (
	// settleFor is the pause between the news of a change and the look, in which the rest of the news arrives: a forced unlock is
	// announced a round trip after it.
	settleFor = 100 * time.Millisecond
	// watchPause is the interval between looks for new masters of a cluster, and between attempts after an error.
	watchPause = 2 * time.Second
	// recheckEvery is the interval between questions for the settings of a server.
	recheckEvery = 30 * time.Second
	// maxNotes limits the names with news.
	maxNotes = 10000
	// maxLooks limits the names in one look.
	maxLooks = 100
)

// watcher is a Watch under way.
type watcher struct {
	client  *Client // constant
	pattern string  // constant
	db      int     // constant

	// Owned by the caller of the iteration.
	yield   func(Event, error) bool
	known   map[string]owners
	began   bool               // all locks held at the beginning are told
	behind  bool               // EventMissed was yielded, and no EventWatching since
	scanned time.Time          // when all locks were read, until the EventWatching; zero behind it
	sources map[string]*source // by address; "" for a single server
	checked time.Time          // when the servers were last asked for their settings
	join    sync.WaitGroup

	wake chan struct{} // capacity 1: there is news

	mu       sync.Mutex // guards the following
	notes    map[string]*note
	order    []*note // in the order of arrival
	missed   int
	lost     error // why events were lost; nil: none were since the last take
	stale    bool  // all locks are to be read, from nextScan on
	nextScan time.Time
	failed   error // ends the watch
}

func newWatcher(c *Client, pattern string) *watcher {
	w := &watcher{
		client: c, pattern: pattern, known: make(map[string]owners), sources: make(map[string]*source),
		wake: make(chan struct{}, 1), notes: make(map[string]*note), stale: true,
	}
	if numbered, ok := find[interface{ DB() int }](c.server); ok {
		w.db = numbered.DB()
	}
	return w
}

func (w *watcher) close() {
	for _, s := range w.sources {
		s.stop()
	}
	w.join.Wait()
}

// errStopped: the caller of Watch wants no further events.
var errStopped = errors.New("lock: stopped")

// tell yields an event.
func (w *watcher) tell(ev Event) error {
	if !w.yield(ev, nil) {
		return errStopped
	}
	return nil
}

// fatalOrMiss returns an error that ends the watch. Another error only makes the watcher read all locks again.
func (w *watcher) fatalOrMiss(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, errStopped), ctx.Err() != nil, w.client.isClosed(), errors.Is(err, conn.ErrClosed), remote.Final(err):
		return err
	case errors.Is(err, conn.ErrNotSent) && !temporary(err): // no later dial would succeed either
		return err
	}
	w.miss(err)
	return nil
}

// run yields events until an error ends the watch.
func (w *watcher) run(ctx context.Context, yield func(Event, error) bool) error {
	w.yield = yield
	again := time.NewTicker(watchPause)
	defer again.Stop()
	settled := time.After(0) // nil without news
	if _, err := w.follow(ctx, false); err != nil {
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
			if _, err := w.follow(ctx, time.Since(w.checked) >= recheckEvery); err != nil {
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

// step yields what has happened. An error is final.
func (w *watcher) step(ctx context.Context) error {
	for {
		if err := w.tellWatching(); err != nil {
			return err
		}
		n := w.take(time.Now())
		if n.failed != nil {
			return n.failed
		}
		var err error
		if n.missed > 0 || n.lost != nil {
			w.scanned = time.Time{}
		}
		if n.missed > 0 || n.lost != nil && !w.behind {
			w.behind = true
			err = w.tell(Event{What: EventMissed, At: time.Now(), Missed: n.missed, Err: n.lost})
		}
		switch {
		case err != nil:
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

// scan compares what the watcher knows with all locks on the servers.
func (w *watcher) scan(ctx context.Context) error {
	if changed, err := w.follow(ctx, true); changed || err != nil {
		return err // a source that has begun makes the watcher read all locks
	}
	found, read := make(map[string]Listed), make(map[string]time.Time)
	for l, err := range w.client.List(ctx, w.pattern) {
		if err != nil {
			return err
		}
		found[l.Name], read[l.Name] = l, time.Now()
	}
	at := time.Now()
	names := slices.AppendSeq(slices.Collect(maps.Keys(w.known)), maps.Keys(found))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := w.tellChange(&note{name: name, first: at, last: at}, found[name], read[name]); err != nil {
			return err
		}
	}
	w.scanned = at
	if w.began {
		return nil // the news until now come first
	}
	w.began = true
	return w.tell(w.watching())
}

// watching returns the EventWatching that is due.
func (w *watcher) watching() Event {
	w.behind, w.scanned = false, time.Time{}
	return Event{What: EventWatching, At: time.Now(), Err: w.partial()}
}

// tellWatching yields the EventWatching once all news until the reading of all locks are told.
func (w *watcher) tellWatching() error {
	if w.scanned.IsZero() || !w.upToDate(w.scanned) {
		return nil
	}
	return w.tell(w.watching())
}

// lookAtChanged asks for the owners of the locks with news.
func (w *watcher) lookAtChanged(ctx context.Context, notes []*note) error {
	names := make([]string, len(notes))
	for i, n := range notes {
		names[i] = n.name
	}
	locks, err := w.client.recognise(remote.Patient(ctx), names)
	if err != nil {
		return err
	}
	at := time.Now()
	found := make(map[string]Listed)
	for _, l := range locks {
		found[l.Name] = l
	}
	for _, n := range notes {
		if err := w.tellChange(n, found[n.name], at); err != nil {
			return err
		}
	}
	return nil
}

// tellChange yields the events of a lock, whose state is l, the zero Listed if it is free, by an answer that came at a time.
func (w *watcher) tellChange(n *note, l Listed, at time.Time) error {
	before, after := w.known[n.name], ownersOf(l)
	if after.at = at; w.began && w.putOff(n, before, after) {
		return nil
	}
	if w.known[n.name] = after; len(after.owners) == 0 && after.former == "" {
		delete(w.known, n.name)
	}
	for _, ev := range n.events(before, after, w.partial() == nil) {
		if !w.began {
			ev.What = EventHeld
		}
		if err := w.tell(ev); err != nil {
			return err
		}
	}
	return nil
}
