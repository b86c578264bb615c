package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// source is a server to which a watcher listens.
type source struct {
	stop    context.CancelFunc // constant
	partial error              // why the server does not tell all, nil if it does; owned by the caller of the iteration
	state   sourceState        // guarded by the watcher's mu
}

type sourceState uint8

const (
	sourceDown  sourceState = iota // not subscribed, now
	sourceUp                       // subscribed
	sourceEnded                    // the server lets nobody listen
)

// follow listens to all servers with keys, and to no others. With again it asks the servers with a subscription once more whether they publish
// events of keys: somebody may have changed a setting, and a new master or a restarted server may have others. changed: the watcher is to read
// all locks again, as it listens anew somewhere, or has missed something.
func (w *watcher) follow(ctx context.Context, again bool) (changed bool, err error) {
	if again {
		w.checked = time.Now()
	}
	masters := map[string]bool{}
	for server, err := range w.client.nature.masters(ctx, w.client.server) {
		if err != nil {
			return true, w.fatalOrMiss(ctx, err)
		}
		addr, dialer, err := w.dialerOf(server)
		if err != nil {
			return false, err
		}
		masters[addr] = true
		anew, err := w.followOne(ctx, addr, server, dialer, again)
		if changed = changed || anew || err != nil; w.fatalOrMiss(ctx, err) != nil {
			return false, err
		}
	}
	for addr, s := range w.sources {
		if !masters[addr] {
			s.stop()
			delete(w.sources, addr)
			w.miss(errReplaced)
			changed = true
		}
	}
	return changed, nil
}

// followOne is follow for one server. anew: the watcher listens to it for the first time, or to other patterns than before.
func (w *watcher) followOne(ctx context.Context, addr string, server conn.Doer, dialer pubsub.Dialer, again bool) (anew bool, err error) {
	s, state := w.sources[addr], sourceEnded
	if s != nil {
		w.mu.Lock()
		state = s.state
		w.mu.Unlock()
	}
	if state == sourceDown || state == sourceUp && !again {
		return false, nil
	}
	partial, err := w.askNotifications(ctx, server)
	switch {
	case err != nil:
		return false, err
	case state == sourceUp && (partial == nil) == (s.partial == nil):
		s.partial = partial
		return false, nil
	case s != nil:
		s.stop()
	}
	return true, w.begin(addr, dialer, partial)
}

// begin starts the goroutine of a source.
func (w *watcher) begin(addr string, dialer pubsub.Dialer, partial error) error {
	life, stop := context.WithCancel(w.client.life)
	s := &source{stop: stop, partial: partial}
	patterns := kinds.WatchPatterns(w.db, w.pattern, partial != nil)
	w.join.Add(1)
	if !w.client.background(func() { defer w.join.Done(); w.listen(life, s, dialer, patterns) }) {
		w.join.Done()
		stop()
		return ErrClosed
	}
	w.sources[addr] = s
	return nil
}

// toServer is the Dialer for one server of several.
type toServer struct {
	spread Spread
	addr   string
}

func (t toServer) Stream(ctx context.Context) (*conn.Stream, error) {
	return t.spread.StreamTo(ctx, t.addr)
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
func (w *watcher) listen(ctx context.Context, s *source, dialer pubsub.Dialer, patterns []string) {
	events := pubsub.New(dialer, pubsub.Config{Logger: w.client.cfg.Logger})
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
		w.update(func() { s.state, w.stale = sourceUp, true })
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
				s.state, w.lost = sourceDown, ev.Err
			case pubsub.Lagged:
				w.missed, w.stale = w.missed+ev.N, true
			}
		})
		if ev.Kind == pubsub.Interrupted {
			return true
		}
	}
	w.update(func() { s.state = sourceDown })
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
		s.state, w.lost = sourceEnded, err
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
