package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
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

// source is a server to which a watcher listens.
type source struct {
	stop   context.CancelFunc // constant
	dialer pubsub.Dialer      // constant

	// Owned by the caller of the iteration.
	server  conn.Doer
	partial error // why the server does not tell all; nil if it does

	// The watcher's mu guards the following.
	up    bool
	ended bool
}

type owners struct {
	shape  Shape
	owners []string
	former string // who has released a lock that AtLeast still keeps taken; "" for any other lock
}

func ownersOf(l *Listed) (o owners) {
	if l == nil {
		return o
	}
	o.shape = l.Shape
	for _, h := range l.Info.Holders {
		if former, ok := predecessor(h.Owner); ok {
			o.former = former
			continue
		}
		o.owners = append(o.owners, h.Owner)
	}
	return o
}

// note is the news of a lock since the last look.
type note struct {
	name     string
	first    time.Time // of the oldest news
	last     time.Time // of the latest news
	written  time.Time // the key has changed
	gone     time.Time // the key went
	how      EventKind // of gone, if known
	released bool      // an Unlock, or a message for waiters
	forced   bool
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

// toServer is the Dialer for one server of several.
type toServer struct {
	spread Spread
	addr   string
}

func (t toServer) Stream(ctx context.Context) (*conn.Stream, error) {
	return t.spread.StreamTo(ctx, t.addr)
}

// follow listens to all servers with keys, and to no others.
func (w *watcher) follow(ctx context.Context) error {
	masters := map[string]bool{}
	for server, err := range w.client.nature.masters(ctx, w.client.server) {
		if err != nil {
			return w.fatalOrMiss(ctx, err)
		}
		addr, dialer, err := w.dialerOf(server)
		if err != nil {
			return err
		}
		masters[addr] = true
		if s := w.sources[addr]; s != nil {
			s.server = server
			w.mu.Lock()
			ended := s.ended
			w.mu.Unlock()
			if !ended {
				continue
			}
			s.stop()
		}
		if err := w.fatalOrMiss(ctx, w.add(ctx, addr, server, dialer)); err != nil {
			return err
		}
	}
	for addr, s := range w.sources {
		if !masters[addr] {
			s.stop()
			delete(w.sources, addr)
			w.miss(errReplaced)
		}
	}
	return nil
}

// dialerOf returns the address of a server of a cluster, else "", and a Dialer for the server.
func (w *watcher) dialerOf(server conn.Doer) (addr string, dialer pubsub.Dialer, err error) {
	spread := w.client.nature.spread
	if spread == nil {
		return "", w.client.nature.dialer(w.client.server), nil
	}
	node, ok := server.(interface{ Addr() string })
	if !ok {
		return "", nil, invalidf("Watch on a Server whose Doers have no method Addr")
	}
	return node.Addr(), toServer{spread, node.Addr()}, nil
}

// partial returns why the servers do not tell all; nil if they do.
func (w *watcher) partial() error {
	for _, addr := range slices.Sorted(maps.Keys(w.sources)) {
		if why := w.sources[addr].partial; why != nil {
			return why
		}
	}
	return nil
}

var errReplaced = errors.New("lock: a master of the cluster was replaced")

// fatalOrMiss returns an error that ends the watch. Another error only makes the watcher read all locks again.
func (w *watcher) fatalOrMiss(ctx context.Context, err error) error {
	if err == nil || w.fatal(ctx, err) {
		return err
	}
	w.miss(err)
	return nil
}

// add begins to listen to a server.
func (w *watcher) add(ctx context.Context, addr string, server conn.Doer, dialer pubsub.Dialer) error {
	partial, err := w.askNotifications(ctx, server)
	if err != nil {
		return err
	}
	return w.begin(addr, &source{server: server, dialer: dialer, partial: partial})
}

// begin starts the goroutine of a source.
func (w *watcher) begin(addr string, s *source) error {
	life, stop := context.WithCancel(w.client.life)
	s.stop = stop
	patterns := kinds.WatchPatterns(w.db, w.pattern, s.partial != nil)
	w.join.Add(1)
	if !w.client.background(func() { defer w.join.Done(); w.listen(life, s, patterns) }) {
		w.join.Done()
		stop()
		return ErrClosed
	}
	w.sources[addr] = s
	return nil
}

// askAgain asks the servers with a subscription whether they publish events of keys: somebody may have changed a setting, and a new
// master or a restarted server may have others. changed: a source has begun anew, with other patterns.
func (w *watcher) askAgain(ctx context.Context) (changed bool, err error) {
	w.checked = time.Now()
	for addr, s := range w.sources {
		w.mu.Lock()
		up := s.up
		w.mu.Unlock()
		if !up {
			continue
		}
		partial, err := w.askNotifications(ctx, s.server)
		switch {
		case err != nil:
			return changed, err
		case (partial == nil) == (s.partial == nil):
			s.partial = partial
			continue
		}
		s.stop()
		if err := w.begin(addr, &source{server: s.server, dialer: s.dialer, partial: partial}); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// askNotifications returns why a server does not publish all events needed; nil if it does.
func (w *watcher) askNotifications(ctx context.Context, server conn.Doer) (partial, err error) {
	letters, err := remote.Setting(ctx, server, "notify-keyspace-events")
	if reply, refused := errors.AsType[resp.Error](err); refused && !temporary(err) {
		return fmt.Errorf("lock: unknown whether the server publishes events of keys: %w", reply), nil
	}
	if err != nil {
		return nil, err
	}
	letters = strings.ReplaceAll(letters, "A", "g$hxe")
	for _, needed := range "Kg$hxe" {
		if !strings.ContainsRune(letters, needed) {
			return errNotifications, nil
		}
	}
	return nil, nil
}

var errNotifications = errors.New("lock: the server does not publish all events of keys: notify-keyspace-events lacks some of Kg$hxe")

// listen takes the messages of a server until ctx ends, or the server lets nobody listen.
func (w *watcher) listen(ctx context.Context, s *source, patterns []string) {
	events := pubsub.New(s.dialer, pubsub.Config{Logger: w.client.cfg.Logger})
	defer events.Close()
	var former *pubsub.Subscription
	for {
		sub, err := events.PSubscribe(ctx, patterns...)
		if err != nil {
			w.update(func() { w.refuseLocked(ctx, s, err) })
			return
		}
		if former != nil {
			_ = former.Close()
		}
		w.update(func() { s.up, w.stale = true, true })
		if !w.receive(ctx, s, sub) {
			return
		}
		former = sub
	}
}

// receive takes the messages of a subscription until it is interrupted, which is true, or ctx ends. The next subscription then ends with the
// reason if the server refuses it for good; the former keeps the connection until then.
func (w *watcher) receive(ctx context.Context, s *source, sub *pubsub.Subscription) (interrupted bool) {
	for ev := range sub.All(ctx) {
		w.update(func() {
			switch ev.Kind {
			case pubsub.Message:
				w.noteLocked(ev.Channel, ev.Payload, time.Now())
			case pubsub.Interrupted:
				s.up, w.lost = false, ev.Err
			case pubsub.Lagged:
				w.missed, w.stale = w.missed+ev.N, true
			}
		})
		if ev.Kind == pubsub.Interrupted {
			return true
		}
	}
	w.update(func() { s.up = false })
	return false
}

// refuseLocked records that a server does not let the watcher listen.
func (w *watcher) refuseLocked(ctx context.Context, s *source, err error) {
	_, refused := errors.AsType[resp.Error](err)
	switch {
	case ctx.Err() != nil:
	case refused || w.client.nature.spread == nil:
		w.failed = err
	default: // the server may have left the cluster
		s.ended, w.lost = true, err
	}
}

// update runs fn under the lock, and wakes the caller of the iteration.
func (w *watcher) update(fn func()) {
	w.mu.Lock()
	fn()
	w.mu.Unlock()
	netfail.Signal(w.wake)
}

// miss makes the watcher read all locks again.
func (w *watcher) miss(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.stale = err, true
}

// noteLocked records a message.
func (w *watcher) noteLocked(channel, payload string, at time.Time) {
	name, sign := kinds.ReadSign(w.db, channel, payload)
	if sign == kinds.Nothing {
		return
	}
	n := w.notes[name]
	if n == nil {
		if sign == kinds.Freed {
			return // the news of the key would have come first: the name does not match
		}
		if len(w.notes) >= maxNotes {
			w.missed, w.stale = w.missed+1, true
			return
		}
		n = &note{name: name, first: at}
		w.notes[name], w.order = n, append(w.order, n)
	}
	n.last = at
	switch sign {
	case kinds.Written:
		n.written = at
	case kinds.Deleted:
		n.gone, n.how = at, ""
	case kinds.TimedOut:
		n.gone, n.how = at, EventExpired
	case kinds.Evicted:
		n.gone, n.how = at, EventForced
	case kinds.Released, kinds.Woken:
		n.released = true
		if twin := w.notes[kinds.Braced(name)]; twin != nil {
			twin.last, twin.released = at, true
		}
	case kinds.Freed:
		n.forced = true
	}
}

// taken is the news for a watcher to yield.
type taken struct {
	notes  []*note
	missed int
	lost   error
	failed error
	scan   bool
}

// take removes the news that have settled, up to maxLooks names.
func (w *watcher) take(now time.Time) (t taken) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.missed, t.lost, t.failed = w.missed, w.lost, w.failed
	w.missed, w.lost = 0, nil
	up := len(w.sources) > 0
	for _, s := range w.sources {
		up = up && s.up
	}
	if w.stale && up && !now.Before(w.nextScan) {
		w.stale, w.nextScan, t.scan = false, now.Add(watchPause), true
		return t
	}
	if !w.began {
		return t
	}
	var rest []*note
	for _, n := range w.order {
		if len(t.notes) < maxLooks && n.settled(now) {
			t.notes = append(t.notes, n)
			delete(w.notes, n.name)
		} else {
			rest = append(rest, n)
		}
	}
	w.order = rest
	return t
}

// waiting reports whether there are news that have not settled.
func (w *watcher) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.order) > 0
}

// settled reports whether no further news is expected. A lock that never rests is told all the same: soon where that is not in the
// middle of a release, and later anyway, since the releases of other clients may leave no news but that the key went.
func (n *note) settled(now time.Time) bool {
	switch age := now.Sub(n.first); {
	case now.Sub(n.last) >= settleFor || age >= 10*settleFor:
		return true
	default:
		return age >= 5*settleFor && (n.gone.IsZero() || n.released || n.written.After(n.gone))
	}
}

// end returns how the holds in before have ended. complete: the server tells all.
func (n *note) end(before owners, complete bool) EventKind {
	switch {
	case n.forced:
		return EventForced
	case n.how != "":
		return n.how
	case n.released || n.gone.IsZero() || before.shape == ShapePlain || !complete:
		return EventReleased
	}
	return EventForced
}

// events returns the events of a lock whose owners have changed from before to after. complete: the server tells all.
func (n *note) events(before, after owners, complete bool) (list []Event) {
	add := func(what EventKind, shape Shape, owner string, at time.Time) {
		if at.IsZero() {
			at = n.last
		}
		list = append(list, Event{What: what, Name: n.name, Shape: shape, Owner: owner, At: at})
	}
	end := n.end(before, complete)
	var stayed []string
	for _, owner := range before.owners {
		// A key goes and comes with the same owner when its slot moves to another server.
		if slices.Contains(after.owners, owner) && (n.gone.IsZero() || !n.released) {
			stayed = append(stayed, owner)
			continue
		}
		add(end, before.shape, owner, n.gone)
	}
	if len(before.owners) == 0 && (n.released || n.forced) {
		short := !n.written.IsZero() && len(after.owners) == 0 && (!n.gone.IsZero() || after.former != before.former)
		shape, owner := Shape(""), ""
		if after.former != "" {
			shape, owner = after.shape, after.former
		}
		if short {
			add(EventAcquired, shape, owner, n.written)
		}
		if short || !complete {
			add(end, shape, owner, n.gone)
		}
	}
	for _, owner := range after.owners {
		if !slices.Contains(stayed, owner) {
			add(EventAcquired, after.shape, owner, n.written)
		}
	}
	return list
}
