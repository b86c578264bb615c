package pubsub

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

var (
	errUnasked      = errors.New("pubsub: a reply without a command")
	errUnsubscribed = errors.New("pubsub: the server ended the subscription")
	errSkipped      = errors.New("no answer, although a later command has one")
)

// dispatch handles a value from the server. An error means that the connection is out of step.
//
// RESP2 sends arrays where RESP3 sends pushes, and an array as the answer to PING. dispatch ignores
// a push that belongs to no pub/sub command, but not such an array.
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

// pushLocked handles a push, and reports whether the push belongs to pub/sub.
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

// channelLocked returns the channel named in v. It returns nil for a channel not of this part, and for the
// null in the answer to an UNSUBSCRIBE without subscriptions.
func (s *Subscriber) channelLocked(k kind, v resp.Value) *channel {
	name, err := v.At(1).Text()
	if err != nil {
		return nil
	}
	if ch := s.root.channels[k][name]; ch != nil && ch.part == s {
		return ch
	}
	return nil
}

// messageLocked delivers a message. The channel's name is at index at of v, followed by the
// payload. Messages to an unconfirmed channel are dropped, because its Subscriptions have not been
// told Resumed.
func (s *Subscriber) messageLocked(k kind, v resp.Value, at int) {
	const frame = len("*3\r\n$7\r\nmessage\r\n$1\r\n\r\n$1\r\n\r\n")
	ch := s.channelLocked(k, v)
	if ch == nil || ch.state != subscribed {
		return
	}
	payload, err := v.At(at + 1).Text()
	if err != nil {
		return
	}
	s.received += frame + len(ch.name) + len(payload)
	ev := Event{Kind: Message, Channel: ch.name, Payload: payload}
	if k == pattern {
		if ev.Channel, err = v.At(at).Text(); err != nil {
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
	s.completeLocked(request{subscribe, ch})
	s.noteAnswerLocked()
	if ch.state != subscribing && ch.state != refused {
		return
	}
	delete(s.refused, ch)
	ch.state, ch.refusals = subscribed, 0
	for _, m := range ch.subs {
		m.sub.confirmLocked()
	}
	if len(ch.subs) == 0 {
		s.updateLocked(ch) // closed before the confirmation arrived
	}
}

// unsubscribedLocked handles an unsubscribe message:
//
//   - The oldest request unsubscribes from the channel: the message is the answer.
//   - The channel is subscribed: the server has ended the subscription. A cluster node does so when
//     the slot of a shard channel moves away.
//   - Otherwise the server has ended a subscription that this process was about to end, too. Any
//     outstanding request about the channel still gets its answer.
//
// The Router is told wherever the server has ended a subscription: the former node of a slot may go
// on as a replica, and grant the next subscription.
func (s *Subscriber) unsubscribedLocked(k kind, v resp.Value) {
	ch := s.channelLocked(k, v)
	req := request{unsubscribe, ch}
	if ch != nil && len(s.asked) > 0 && s.asked[0] == req {
		s.completeLocked(req)
		s.noteAnswerLocked()
		ch.state = absent
		s.updateLocked(ch)
		return
	}
	ended := ch != nil && ch.state == subscribed
	if ended {
		ch.deactivate(absent)
		for _, m := range ch.subs {
			m.sub.interruptLocked(ch.event(Interrupted, errUnsubscribed))
		}
	}
	if s.router != nil && (ended || k == shard) {
		s.router.Refused(s.server, errUnsubscribed)
	}
	if ended && !s.rerouteLocked(ch) {
		s.updateLocked(ch)
	}
}

func (s *Subscriber) pongLocked() {
	s.completeLocked(request{verb: ping})
	s.pingSent = time.Time{}
	s.noteAnswerLocked()
}

// errorLocked handles an error reply, the answer to the oldest request.
func (s *Subscriber) errorLocked(err error) error {
	if len(s.asked) == 0 {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	s.noteAnswerLocked()
	s.deniedLocked(s.takeAskedLocked(), err)
	return nil
}

// completeLocked removes the answered request. The server answers in order, so older requests will
// get no answer any more and fail.
func (s *Subscriber) completeLocked(req request) {
	for ahead := slices.Index(s.asked, req); ahead >= 0; ahead-- {
		if first := s.takeAskedLocked(); ahead > 0 {
			s.deniedLocked(first, errSkipped)
		}
	}
}

// takeAskedLocked removes and returns the oldest request.
func (s *Subscriber) takeAskedLocked() request {
	req := s.asked[0]
	s.asked = s.asked[1:]
	return req
}

// deniedLocked handles a request that failed with err.
func (s *Subscriber) deniedLocked(req request, err error) {
	switch ch := req.ch; req.verb {
	case ping:
		s.pingSent = time.Time{} // an error also shows that the server answers
	case subscribe:
		s.refuseLocked(ch, fmt.Errorf("pubsub: %s %q: %w", commandNames[ch.kind][subscribe], ch.name, err), time.Now())
	case unsubscribe:
		ch.state = absent // further messages find no Subscription
		s.updateLocked(ch)
	}
}

// noteAnswerLocked records that the server has answered a request.
func (s *Subscriber) noteAnswerLocked() { s.lastAnswer, s.hasAnswered = time.Now(), true }

// temporary reports whether the reason for a refusal goes away by itself.
func temporary(err error) bool {
	return errors.Is(err, errSkipped) || netfail.Reply(err) == netfail.Again
}
