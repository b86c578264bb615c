package lock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// listenAfter is for how long a lock must be held for the client to listen to those who free locks by force.
	listenAfter = 250 * time.Millisecond
	// alarmPause is the least time between two alarms: connections may be lost again and again.
	alarmPause = time.Second
)

// alarms is what tells the watchdog that leases may have been lost before their time: their server was lost from sight, and may
// have forgotten them, or another client has freed a lock by force. The leases concerned are then renewed at once, and those that
// are not renewed are looked at.
type alarms struct {
	raised atomic.Bool // for all leases

	// Owned by the loop.
	last      time.Time // when all leases were renewed because of an alarm
	looks     []*Lease  // that are not renewed, to look at
	lookAt    time.Time // when; after a failure
	listening *pubsub.Subscription
	candidate *Lease // whether it is still held is looked at next time
	unused    bool   // there was no lease the last time
}

// raise has all leases renewed soon. It does not block.
func (w *watchdog) raise() {
	w.alarms.raised.Store(true)
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// onLoss registers raise with the server, and returns what undoes that.
func (w *watchdog) onLoss(s Server) (stop func()) {
	for {
		if l, ok := s.(interface {
			OnLoss(fn func()) (stop func())
		}); ok {
			return l.OnLoss(w.raise)
		}
		wrapper, ok := s.(interface{ Unwrap() Server })
		if !ok {
			return func() {}
		}
		s = wrapper.Unwrap()
	}
}

// answerAlarm makes all leases due if there is an alarm, unless that was the case a moment ago.
func (w *watchdog) answerAlarm(at time.Time) {
	a := &w.alarms
	if at.Sub(a.last) < alarmPause || !a.raised.Swap(false) {
		return
	}
	a.last = at
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewAllLocked(at)
	for _, r := range w.endings {
		a.looks = append(a.looks, r.lease)
	}
	a.lookAt = at
}

// hear takes note of what is heard from those who free locks by force.
func (w *watchdog) hear(ev pubsub.Event, at time.Time) {
	a := &w.alarms
	switch ev.Kind {
	case pubsub.Resumed, pubsub.Lagged: // something may have been missed
		w.raise()
	case pubsub.Message:
		leases := w.client.leasesNamed(ev.Payload)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, l := range leases {
			switch {
			case l.watch.lease == nil || l.watch.ended || l.watch.index < 0:
			case l.renewed:
				w.dueLocked(&l.watch, at)
			default:
				a.looks, a.lookAt = append(a.looks, l), at
			}
		}
	}
}

// listen begins to listen if a lock has been held for a while, and ends it if none is.
func (w *watchdog) listen() {
	a := &w.alarms
	w.mu.Lock()
	var held *Lease
	for _, s := range []schedule{w.renewals, w.endings} {
		if len(s) > 0 {
			held = s[0].lease
		}
	}
	stays := a.candidate != nil && !a.candidate.watch.ended
	w.mu.Unlock()
	switch {
	case held == nil && a.listening != nil && a.unused:
		_ = a.listening.Close()
		a.listening, a.unused = nil, false
	case held == nil:
		a.unused = a.listening != nil
	case a.listening == nil && stays && !w.client.deaf:
		a.listening, _ = w.client.events.Listen(forcedChannel) // an error says that the client is closed
	}
	if a.candidate = held; held != nil {
		a.unused = false
	}
}

// news is what the loop hears; nil if it does not listen.
func (a *alarms) news() <-chan pubsub.Event {
	if a.listening == nil {
		return nil
	}
	return a.listening.Events()
}

// look looks at leases that are not renewed, whether the server has them. Those of which it does not say so are looked at again.
func (w *watchdog) look(at time.Time) {
	a := &w.alarms
	if len(a.looks) == 0 || a.lookAt.After(at) {
		return
	}
	leases := a.looks
	a.looks = nil
	ctx, cancel := context.WithTimeout(w.client.life, max(w.client.cfg.Lease/6, renewMin))
	defer cancel()
	byScript := func(l *Lease) *script.Script { return l.target.kind.renew }
	for _, part := range partition(leases, byScript) {
		answers, _ := w.client.askRenewals(ctx, part, true)
		for _, n := range answers {
			switch {
			case n.err != nil && !final(n.err):
				a.looks = append(a.looks, n.lease)
			case n.err == nil && n.outcome == 0:
				n.lease.denied(Forced, nil)
			case n.err == nil && n.outcome < 0:
				n.lease.denied(Taken, nil)
			}
		}
	}
	a.lookAt = time.Now().Add(retryMax)
}

// leasesNamed returns the leases on locks of a name, of all kinds.
func (c *Client) leasesNamed(name string) (leases []*Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if key.name != name {
			continue
		}
		for l := e.leases; l != nil; l = l.next {
			leases = append(leases, l)
		}
	}
	return leases
}

// tellForced tells all clients that a lock was freed by force. If that fails its holder learns it from the next renewal.
func (c *Client) tellForced(ctx context.Context, t *target) {
	if _, err := c.server.Send(c.patient(ctx), resp.Cmd(plainPublish, forcedChannel, t.name)); err != nil {
		c.warn("a holder is not told at once that its lock was freed by force", "error", err)
	}
}
