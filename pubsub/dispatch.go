package pubsub

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

var (
	errUnasked      = errors.New("pubsub: a reply that nobody asked for")
	errUnsubscribed = errors.New("pubsub: the server ended the subscription")
	errPassedOver   = errors.New("no answer, but one to what was asked later")
)

// dispatch acts upon a value that the server sent. An error means that the connection is out of step.
//
// In RESP2 what RESP3 calls a push is an array, and so is the answer to PING. What has the shape of neither a
// message nor a confirmation is passed over.
func (s *Subscriber) dispatch(v resp.Value) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	switch v.Kind() {
	case resp.Push, resp.Array:
		if !s.pushLocked(v) && v.Kind() == resp.Array {
			return errUnasked
		}
	case resp.SimpleError, resp.BlobError:
		return s.errorLocked(v.Err())
	default:
		if text, err := v.Text(); err != nil || text != "PONG" {
			return errUnasked
		}
		s.pongLocked()
	}
	return nil
}

// pushLocked reports whether v is of a kind that belongs to pub/sub.
func (s *Subscriber) pushLocked(v resp.Value) bool {
	name, err := v.At(0).Text()
	if err != nil {
		return false
	}
	switch name {
	case "message":
		s.messageLocked(plain, v, 1)
	case "smessage":
		s.messageLocked(shard, v, 1)
	case "pmessage":
		s.messageLocked(pattern, v, 2)
	case "subscribe":
		s.subscribedLocked(plain, v)
	case "ssubscribe":
		s.subscribedLocked(shard, v)
	case "psubscribe":
		s.subscribedLocked(pattern, v)
	case "unsubscribe":
		s.unsubscribedLocked(plain, v)
	case "sunsubscribe":
		s.unsubscribedLocked(shard, v)
	case "punsubscribe":
		s.unsubscribedLocked(pattern, v)
	case "pong":
		s.pongLocked()
	default:
		return false
	}
	return true
}

// channelLocked returns the channel that v names, or nil: a null, which is how UNSUBSCRIBE is answered where there is
// nothing to unsubscribe, or one that nobody wants.
func (s *Subscriber) channelLocked(k kind, v resp.Value) *channel {
	name, err := v.At(1).Text()
	if err != nil {
		return nil
	}
	return s.channels[k][name]
}

// messageLocked delivers a message, of which the channel it was published to is at the given place and the payload
// behind it. Channels that are not confirmed receive nothing: their Subscriptions have not been told that they do.
func (s *Subscriber) messageLocked(k kind, v resp.Value, place int) {
	const frame = len("*3\r\n$7\r\nmessage\r\n$1\r\n\r\n$1\r\n\r\n")
	ch := s.channelLocked(k, v)
	if ch == nil || ch.state != subscribed {
		return
	}
	payload, err := v.At(place + 1).Text()
	if err != nil {
		return
	}
	s.received += frame + len(ch.name) + len(payload)
	ev := Event{Kind: Message, Channel: ch.name, Payload: payload}
	if k == pattern {
		if ev.Channel, err = v.At(place).Text(); err != nil {
			return
		}
		ev.Pattern = ch.name
	}
	var kept *Event
	for _, m := range ch.subs {
		kept = m.sub.deliverLocked(&ev, kept)
	}
}

func (s *Subscriber) subscribedLocked(k kind, v resp.Value) {
	ch := s.channelLocked(k, v)
	if ch == nil {
		return
	}
	s.settleLocked(request{subscribe, ch})
	s.answerLocked()
	if ch.state != subscribing && ch.state != refused {
		return
	}
	delete(s.refused, ch)
	ch.state, ch.refusals = subscribed, 0
	for _, m := range ch.subs {
		m.sub.confirmLocked()
	}
	if len(ch.subs) == 0 {
		s.touchLocked(ch) // closed while the confirmation was on its way
	}
}

// unsubscribedLocked takes the answer to an unsubscription, or one that nobody asked for: a cluster node sends
// sunsubscribe when the slot of a shard channel moves away. It is no answer if one to something else is due: that one
// is still to come, and so is the one to an unsubscription that was asked for at the same time.
//
// While a request about the channel is on its way it passes the news over, which then are older than the answer.
func (s *Subscriber) unsubscribedLocked(k kind, v resp.Value) {
	ch := s.channelLocked(k, v)
	if ch == nil {
		return
	}
	req := request{unsubscribe, ch}
	switch {
	case s.asked.place(req) == 0:
		s.settleLocked(req)
		s.answerLocked()
		ch.state = absent
		s.touchLocked(ch)
	case ch.state == subscribed:
		ch.leave(absent)
		for _, m := range ch.subs {
			m.sub.interruptLocked(ch.event(Interrupted, errUnsubscribed))
		}
		if s.router != nil {
			s.router.Refused(s.server, errUnsubscribed)
		}
		if !s.rerouteLocked(ch) {
			s.touchLocked(ch)
		}
	}
}

func (s *Subscriber) pongLocked() {
	s.settleLocked(request{verb: ping})
	s.pinged = time.Time{}
	s.answerLocked()
}

// errorLocked takes an error reply, which answers the oldest request there is.
func (s *Subscriber) errorLocked(err error) error {
	req, ok := s.asked.take()
	if !ok {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	s.answerLocked()
	s.deniedLocked(req, err)
	return nil
}

// settleLocked removes the request that the server has answered. It answers in order: if others are ahead of this one,
// there will be no answer to them.
func (s *Subscriber) settleLocked(req request) {
	for ahead := s.asked.place(req); ahead >= 0; ahead-- {
		if first, _ := s.asked.take(); ahead > 0 {
			s.deniedLocked(first, errPassedOver)
		}
	}
}

// deniedLocked notes that a request got an error in the place of its answer.
func (s *Subscriber) deniedLocked(req request, err error) {
	switch ch := req.ch; req.verb {
	case ping:
		s.pinged = time.Time{} // no PONG, but a sign of life
	case subscribe:
		s.refuseLocked(ch, fmt.Errorf("pubsub: %s: %w", names[ch.kind][subscribe], err), time.Now())
	case unsubscribe:
		ch.state = absent // messages for a channel that nobody wants are passed over
		s.touchLocked(ch)
	}
}

// answerLocked notes that the server answers.
func (s *Subscriber) answerLocked() { s.answered, s.answers = time.Now(), true }

// passing reports whether the reason of a refusal is one that goes away by itself.
func passing(err error) bool {
	return errors.Is(err, errPassedOver) || netfail.Reply(err) == netfail.Again
}
