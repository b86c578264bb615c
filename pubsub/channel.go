package pubsub

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// kind is one of the three name spaces of Redis channels.
type kind uint8

const (
	plain kind = iota
	pattern
	shard
	kindCount int = iota
)

// verb is a request that a Subscriber sends to the server.
type verb uint8

const (
	subscribe verb = iota
	unsubscribe
	ping
)

var commandNames = [kindCount][2]string{
	plain:   {subscribe: "SUBSCRIBE", unsubscribe: "UNSUBSCRIBE"},
	pattern: {subscribe: "PSUBSCRIBE", unsubscribe: "PUNSUBSCRIBE"},
	shard:   {subscribe: "SSUBSCRIBE", unsubscribe: "SUNSUBSCRIBE"},
}

// state is the state of a channel on the present connection.
type state uint8

const (
	absent        state = iota // not requested, or unsubscribed
	subscribing                // requested, not answered
	subscribed                 // confirmed
	unsubscribing              // requested, not answered
	refused                    // answered with an error
)

// channel is a channel, pattern or shard channel that some Subscriptions want, or whose
// unsubscription the server has not confirmed.
//
// In the states subscribing and unsubscribing one request about the channel is outstanding, and no
// request in the other states. If the wanted state changes meanwhile, the next request waits for
// the answer. So the answer to an earlier request is never taken for that of a later one.
type channel struct {
	name     string // constant
	kind     kind   // constant
	part     *part  // has the connection for the channel
	state    state
	changed  bool  // listed in part.changed
	refusals uint8 // consecutive refusals
	subs     map[*Subscription]struct{}
}

func (ch *channel) interrupted(err error) Event {
	if ch.kind == pattern {
		return Event{Kind: Interrupted, Pattern: ch.name, Err: err}
	}
	return Event{Kind: Interrupted, Channel: ch.name, Err: err}
}

// deactivate changes to a state other than subscribed. Subscriptions to a channel that was subscribed count it as missing.
func (ch *channel) deactivate(to state) {
	if ch.state == subscribed {
		for sub := range ch.subs {
			sub.missing++
		}
	}
	ch.state = to
}

// request is a request that the server has not answered.
type request struct {
	verb verb
	ch   *channel // nil for ping
}

// addMemberLocked adds sub to the Subscriptions of a channel.
func (s *Subscriber) addMemberLocked(sub *Subscription, k kind, name string) {
	ch := s.channels[k][name]
	if ch == nil {
		ch = &channel{name: name, kind: k, part: s.routeLocked(k, name), subs: make(map[*Subscription]struct{})}
		s.channels[k][name] = ch
		ch.part.count++
	}
	if _, twice := ch.subs[sub]; twice {
		return // the caller named the channel twice
	}
	ch.subs[sub] = struct{}{}
	sub.channels = append(sub.channels, ch)
	if ch.state == refused {
		// A new Subscription gets an answer of its own.
		delete(ch.part.refused, ch)
		ch.state = absent
	}
	if ch.state != subscribed {
		sub.missing++
		ch.part.updateLocked(ch)
	}
}

// removeLocked closes sub. Further calls have no effect.
func (s *Subscriber) removeLocked(sub *Subscription) {
	if sub.closed {
		return
	}
	sub.closed = true
	if sub.watch != nil {
		netfail.Signal(sub.watch.wake)
	} else {
		sub.queue.close()
	}
	s.subscriptions--
	// In the opposite order of subscribing: the first channel is the last to be unsubscribed.
	for _, ch := range slices.Backward(sub.channels) {
		if delete(ch.subs, sub); len(ch.subs) == 0 {
			ch.part.updateLocked(ch)
		}
	}
	sub.channels = nil
}

// updateLocked lists ch for the keeper, which sends the request that is due. Without a Subscription to ch, and without a
// subscription on the server, it forgets ch.
func (p *part) updateLocked(ch *channel) {
	switch {
	case len(ch.subs) == 0 && (ch.state == absent || ch.state == refused):
		delete(p.subscriber.channels[ch.kind], ch.name)
		p.forgetLocked(ch)
	case p.connected && !ch.changed:
		ch.changed = true
		p.changed = append(p.changed, ch)
		netfail.Signal(p.wake)
	}
}

// forgetLocked removes ch from the part. No request about ch is outstanding.
func (p *part) forgetLocked(ch *channel) {
	delete(p.refused, ch)
	if p.count--; p.count == 0 {
		netfail.Signal(p.wake)
	}
}

// maxCommands is the number of commands per write. 512 commands fill the buffers of a network
// without using much memory.
const maxCommands = 512

// commandsLocked returns the commands that bring the server's subscriptions to the wanted state, up
// to maxCommands, and records the commands as requests.
func (p *part) commandsLocked() (cmds []resp.Command) {
	for len(p.changed) > 0 && len(cmds) < maxCommands {
		ch := p.changed[0]
		p.changed[0], p.changed = nil, p.changed[1:]
		ch.changed = false
		switch wanted := len(ch.subs) > 0; {
		case wanted && ch.state == absent:
			ch.state = subscribing
			cmds = append(cmds, p.requestLocked(subscribe, ch))
		case !wanted && ch.state == subscribed:
			ch.state = unsubscribing
			cmds = append(cmds, p.requestLocked(unsubscribe, ch))
		}
	}
	if len(p.changed) == 0 {
		p.changed = nil
	}
	if p.pingDue {
		p.pingDue = false
		cmds = append(cmds, p.requestLocked(ping, nil))
	}
	return cmds
}

// requestLocked records a request and returns its command.
func (p *part) requestLocked(v verb, ch *channel) resp.Command {
	p.unanswered = append(p.unanswered, request{v, ch})
	if v == ping {
		return resp.Cmd("PING")
	}
	return resp.Cmd(commandNames[ch.kind][v], ch.name).On(ch.name)
}

// connectLocked prepares a new connection: the Subscriber requests every channel again.
func (p *part) connectLocked(now time.Time) {
	p.connected, p.lastAnswer, p.hasAnswered = true, now, false
	p.pingSent, p.idleSince = time.Time{}, time.Time{}
	if p.lost {
		p.lost = false
		p.subscriber.reconnects++
	}
	for ch := range p.channelsLocked() {
		p.updateLocked(ch)
	}
}

// disconnectLocked forgets the state of the connection. cause is nil unless the connection was
// lost; consumers receive it with Interrupted.
func (p *part) disconnectLocked(cause error) {
	p.connected, p.changed, p.unanswered = false, nil, nil
	p.doubts, p.pingDue = 0, false
	p.lost = cause != nil
	clear(p.refused)
	for ch := range p.channelsLocked() {
		ch.changed = false
		ch.deactivate(absent)
		for sub := range ch.subs {
			sub.interruptLocked(Event{Kind: Interrupted, Err: cause})
		}
		p.updateLocked(ch)
	}
}

// postponeLocked makes the keeper request ch, refused with err, after a pause.
func (p *part) postponeLocked(ch *channel, err error, now time.Time) {
	ch.deactivate(refused)
	p.refused[ch] = now.Add(p.pauseLocked(ch, err))
	netfail.Signal(p.wake)
}

// longestRefusal is the maximum pause before a refused channel is requested again.
const longestRefusal = time.Minute

// refuseLocked records that the server refused ch. A waiting Subscribe fails, unless the error is
// temporary; other consumers receive Interrupted. The keeper requests the channel again after a
// pause.
func (p *part) refuseLocked(ch *channel, err error, now time.Time) {
	ch.refusals = min(ch.refusals+1, 100)
	if p.redirectLocked(ch, err, now) {
		return
	}
	p.postponeLocked(ch, err, now)
	if len(ch.subs) == 0 {
		p.updateLocked(ch)
		return
	}
	for sub := range ch.subs {
		if sub.ready != nil {
			if !temporary(err) && (p.subscriber.router == nil || !netfail.Redirects(err)) {
				sub.failLocked(err)
			}
			continue
		}
		sub.up = false
		sub.deliverLocked(&delivery{Event: ch.interrupted(err)})
	}
}
