package pubsub

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// kind is one of the three name spaces in which Redis publishes.
type kind uint8

const (
	plain kind = iota
	pattern
	shard
	kinds int = iota
)

// verb is what the Subscriber may ask the server for.
type verb uint8

const (
	subscribe verb = iota
	unsubscribe
	ping
)

var names = [kinds][2]string{
	plain:   {subscribe: "SUBSCRIBE", unsubscribe: "UNSUBSCRIBE"},
	pattern: {subscribe: "PSUBSCRIBE", unsubscribe: "PUNSUBSCRIBE"},
	shard:   {subscribe: "SSUBSCRIBE", unsubscribe: "SUNSUBSCRIBE"},
}

// state is what the server and this process last said to each other about a channel, on the present connection.
type state uint8

const (
	absent        state = iota // nothing yet, or unsubscribed
	subscribing                // asked for, not answered
	subscribed                 // confirmed
	unsubscribing              // asked for, not answered
	refused                    // answered by an error
)

// channel is a channel, pattern or shard channel that some Subscriptions want, or that the server has not forgotten yet.
//
// One request about it is on its way while it is subscribing or unsubscribing, and none otherwise. What changes in the meantime is acted upon when the answer is there, so
// that a subscription that follows upon an unsubscription never takes the one's answer for the other's.
type channel struct {
	name     string // constant
	kind     kind   // constant
	home     *Subscriber
	state    state
	changed  bool  // is in Subscriber.changed
	refusals uint8 // in a row
	subs     []member
}

// member is a Subscription that wants a channel, and the index of the channel among those of the Subscription.
type member struct {
	sub   *Subscription
	index int
}

// event returns an event about the channel as a whole.
func (ch *channel) event(k EventKind, err error) Event {
	if ch.kind == pattern {
		return Event{Kind: k, Pattern: ch.name, Err: err}
	}
	return Event{Kind: k, Channel: ch.name, Err: err}
}

// leave sets the state to one in which nothing is received, and makes the Subscriptions miss the channel.
func (ch *channel) leave(to state) {
	if ch.state == subscribed {
		for _, m := range ch.subs {
			m.sub.missing++
		}
	}
	ch.state = to
}

// request is something that was asked of the server and that it has not answered.
type request struct {
	verb verb
	ch   *channel // nil for ping
}

// requests holds, in the order in which they were sent, those that the server has not answered. It answers in that order,
// which is how an error reply finds what it is about.
type requests struct {
	queue []request
	first int // place in queue of the oldest
}

func (r *requests) add(req request) {
	if r.first > len(r.queue)/2 {
		r.queue, r.first = slices.Delete(r.queue, 0, r.first), 0
	}
	r.queue = append(r.queue, req)
}

// place returns how many requests are ahead of the oldest one that equals req, or -1 if there is none.
func (r *requests) place(req request) int { return slices.Index(r.queue[r.first:], req) }

// take removes and returns the oldest request.
func (r *requests) take() (req request, ok bool) {
	if r.first == len(r.queue) {
		return request{}, false
	}
	req = r.queue[r.first]
	r.queue[r.first] = request{}
	r.first++
	return req, true
}

// joinLocked makes sub one of those who want the channel.
func (s *Subscriber) joinLocked(sub *Subscription, k kind, name string) {
	ch := s.channels[k][name]
	if ch == nil {
		ch = &channel{name: name, kind: k, home: s}
		if s.channels[k] == nil {
			s.channels[k] = make(map[string]*channel)
		}
		s.channels[k][name] = ch
		s.count++
	}
	if n := len(ch.subs); n > 0 && ch.subs[n-1].sub == sub {
		return // named twice
	}
	ch.subs = append(ch.subs, member{sub, len(sub.channels)})
	sub.channels = append(sub.channels, membership{ch, len(ch.subs) - 1})
	if ch.state == refused {
		// Whoever comes anew has a right to an answer of its own.
		delete(s.refused, ch)
		ch.state = absent
	}
	if ch.state != subscribed {
		sub.missing++
		s.touchLocked(ch)
	}
}

// removeLocked closes sub. It may be called again.
func (s *Subscriber) removeLocked(sub *Subscription) {
	if sub.closed {
		return
	}
	sub.closed = true
	if sub.watch != nil {
		sub.watch.ringLocked()
	} else {
		sub.queue.close()
	}
	s.subscriptions--
	for _, in := range sub.channels {
		in.ch.dropLocked(in.place)
	}
	sub.channels = nil
}

// dropLocked removes the Subscription at a place. The last one takes it.
func (ch *channel) dropLocked(place int) {
	last := len(ch.subs) - 1
	moved := ch.subs[last]
	ch.subs[place] = moved
	moved.sub.channels[moved.index].place = place
	ch.subs[last] = member{}
	ch.subs = ch.subs[:last]
	if last == 0 {
		ch.home.touchLocked(ch)
	}
}

// touchLocked makes the keeper look at ch, or forgets it if there is nothing to be said to the server.
func (s *Subscriber) touchLocked(ch *channel) {
	switch {
	case len(ch.subs) == 0 && (ch.state == absent || ch.state == refused):
		delete(s.channels[ch.kind], ch.name)
		delete(s.refused, ch)
		s.count--
		if s.count == 0 {
			s.wakeKeeper()
		}
	case s.connected && !ch.changed:
		ch.changed = true
		s.changed = append(s.changed, ch)
		s.wakeKeeper()
	}
}

// chunk is how many commands are written at once. Some 500 of them fill a network's buffers without taking much memory.
const chunk = 512

// commandsLocked appends the commands that make the server's subscriptions those wanted, up to a chunk of them, and
// notes that they have been sent.
func (s *Subscriber) commandsLocked(cmds []resp.Command) []resp.Command {
	n := 0
	for _, ch := range s.changed {
		if len(cmds) == chunk {
			break
		}
		n++
		ch.changed = false
		switch wanted := len(ch.subs) > 0; {
		case wanted && ch.state == absent:
			ch.state = subscribing
			cmds = append(cmds, s.askLocked(subscribe, ch))
		case !wanted && ch.state == subscribed:
			ch.state = unsubscribing
			cmds = append(cmds, s.askLocked(unsubscribe, ch))
		}
	}
	clear(s.changed[:n])
	if s.changed = s.changed[n:]; len(s.changed) == 0 {
		s.changed = nil
	}
	return cmds
}

func (s *Subscriber) askLocked(v verb, ch *channel) resp.Command {
	s.asked.add(request{v, ch})
	if v == ping {
		return resp.Cmd("PING")
	}
	return resp.Cmd(names[ch.kind][v], ch.name).On(ch.name)
}

// connectLocked makes the Subscriber ask for everything on a new connection.
func (s *Subscriber) connectLocked(now time.Time) {
	s.connected, s.answered, s.answers = true, now, false
	s.pinged, s.idle = time.Time{}, time.Time{}
	if s.lost {
		s.lost = false
		s.root.reconnects++
	}
	for _, channels := range s.channels {
		for _, ch := range channels {
			s.touchLocked(ch)
		}
	}
}

// disconnectLocked forgets what was said on the connection, and tells the consumers if cause says that it was lost.
func (s *Subscriber) disconnectLocked(cause error) {
	s.connected, s.changed, s.asked = false, nil, requests{}
	s.lost = cause != nil
	clear(s.refused)
	for _, channels := range s.channels {
		for _, ch := range channels {
			ch.changed = false
			ch.leave(absent)
			for _, m := range ch.subs {
				m.sub.interruptLocked(Event{Kind: Interrupted, Err: cause})
			}
			s.touchLocked(ch)
		}
	}
}

// The longest pause before what the server refuses is asked for again.
const longestRefusal = time.Minute

// refuseLocked notes the server's answer that it does not grant ch. A Subscribe that waits for it fails, unless the error
// is one of those that pass; the others are told, and the keeper asks again after a pause.
func (s *Subscriber) refuseLocked(ch *channel, err error, now time.Time) {
	if s.divertLocked(ch, err) {
		return
	}
	ch.leave(refused)
	ch.refusals = min(ch.refusals+1, 100)
	s.refused[ch] = now.Add(s.pauseLocked(ch, err))
	if len(ch.subs) == 0 {
		s.touchLocked(ch)
		return
	}
	s.wakeKeeper()
	for _, m := range slices.Clone(ch.subs) {
		sub := m.sub
		if sub.ready != nil {
			if !passing(err) && (s.router == nil || !isRedirect(err)) {
				sub.failLocked(err)
			}
			continue
		}
		sub.up = false
		ev := ch.event(Interrupted, err)
		sub.deliverLocked(&ev, nil)
	}
}
