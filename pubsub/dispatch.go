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
func (p *part) dispatch(v resp.Value) error {
	p.subscriber.mu.Lock()
	defer p.subscriber.mu.Unlock()
	if p.subscriber.isClosed() {
		return nil
	}
	switch v.Kind() {
	case resp.Push, resp.Array:
		if !p.pushLocked(v) && v.Kind() == resp.Array {
			return errUnasked
		}
	case resp.SimpleError, resp.BlobError:
		return p.errorLocked(v.Err())
	default:
		if text, err := v.Text(); err != nil || text != "PONG" {
			return errUnasked
		}
		p.pongLocked()
	}
	return nil
}

// pushLocked handles a push, and reports whether the push belongs to pub/sub.
func (p *part) pushLocked(v resp.Value) bool {
	name, err := v.At(0).Text()
	if err != nil {
		return false
	}
	switch name {
	case "message":
		p.messageLocked(plain, v, 1)
	case "smessage":
		p.messageLocked(shard, v, 1)
	case "pmessage":
		p.messageLocked(pattern, v, 2)
	case "subscribe":
		p.subscribedLocked(plain, v)
	case "ssubscribe":
		p.subscribedLocked(shard, v)
	case "psubscribe":
		p.subscribedLocked(pattern, v)
	case "unsubscribe":
		p.unsubscribedLocked(plain, v)
	case "sunsubscribe":
		p.unsubscribedLocked(shard, v)
	case "punsubscribe":
		p.unsubscribedLocked(pattern, v)
	case "pong":
		p.pongLocked()
	default:
		return false
	}
	return true
}

// channelLocked returns the channel named in v. It returns nil for a channel not of this part, and for the
// null in the answer to an UNSUBSCRIBE without subscriptions.
func (p *part) channelLocked(k kind, v resp.Value) *channel {
	name, err := v.At(1).Text()
	if err != nil {
		return nil
	}
	if ch := p.subscriber.channels[k][name]; ch != nil && ch.part == p {
		return ch
	}
	return nil
}

// messageLocked delivers a message. v has the channel's name at index at, followed by the payload.
// Messages to an unconfirmed channel are dropped: its Subscriptions deliver messages only after
// Resumed.
func (p *part) messageLocked(k kind, v resp.Value, at int) {
	const frame = len("*3\r\n$7\r\nmessage\r\n$1\r\n\r\n$1\r\n\r\n")
	ch := p.channelLocked(k, v)
	if ch == nil || ch.state != subscribed {
		return
	}
	payload, err := v.At(at + 1).Text()
	if err != nil {
		return
	}
	p.received += frame + len(ch.name) + len(payload)
	d := delivery{Event: Event{Kind: Message, Channel: ch.name, Payload: payload}}
	if k == pattern {
		if d.Channel, err = v.At(at).Text(); err != nil {
			return
		}
		d.Pattern = ch.name
	}
	for sub := range ch.subs {
		sub.deliverLocked(&d)
	}
}

func (p *part) subscribedLocked(k kind, v resp.Value) {
	ch := p.channelLocked(k, v)
	if ch == nil {
		return
	}
	p.completeLocked(request{subscribe, ch})
	p.noteAnswerLocked()
	if ch.state != subscribing && ch.state != refused {
		return
	}
	delete(p.refused, ch)
	ch.state, ch.refusals = subscribed, 0
	for sub := range ch.subs {
		if sub.missing--; sub.missing == 0 {
			sub.resumeLocked()
		}
	}
	if len(ch.subs) == 0 {
		p.updateLocked(ch) // closed before the confirmation arrived
	}
}

// unsubscribedLocked handles an unsubscribe message:
//
//   - The oldest request unsubscribes from the channel: the message is taken for the answer. For a shard
//     channel that is doubtful: if the slot moved before the request arrived, the message was sent for that,
//     and the request gets an error.
//   - The channel is subscribed: the server has ended the subscription. A cluster node does so when
//     the slot of a shard channel moves away.
//   - Otherwise the server has ended a subscription that this process was about to end, too. Any
//     outstanding request about the channel still gets its answer.
//
// The Router is told of the second case, and for a shard channel of the third: the former node of a
// slot may go on as a replica and grant the next subscription, so no error would show the move.
func (p *part) unsubscribedLocked(k kind, v resp.Value) {
	ch := p.channelLocked(k, v)
	req := request{unsubscribe, ch}
	if ch != nil && len(p.unanswered) > 0 && p.unanswered[0] == req {
		doubts := 0
		if k == shard {
			doubts = p.doubts + 1
		}
		p.takeOldestLocked()
		p.doubts = doubts
		p.noteAnswerLocked()
		ch.state = absent
		p.updateLocked(ch)
		return
	}
	ended := ch != nil && ch.state == subscribed
	if ended {
		ch.deactivate(absent)
		for sub := range ch.subs {
			sub.interruptLocked(ch.interrupted(errUnsubscribed))
		}
	}
	if ended || k == shard {
		p.tellRouter(errUnsubscribed)
	}
	if ended && !p.rerouteLocked(ch) {
		p.updateLocked(ch)
	}
}

// tellRouter tells the Router, if there is one, of a problem with the server.
func (p *part) tellRouter(err error) {
	if p.subscriber.router != nil {
		p.subscriber.router.Refused(p.server, err)
	}
}

func (p *part) pongLocked() {
	p.completeLocked(request{verb: ping})
	p.pingSent = time.Time{}
	p.noteAnswerLocked()
}

// errorLocked handles an error reply, the answer to the oldest request. After a doubtful end of a subscription a MOVED or
// CLUSTERDOWN is taken for the answer to its SUNSUBSCRIBE, which the message was not. In case it is the answer to the oldest
// request, a PING follows: if that is answered first, the oldest request is repeated.
func (p *part) errorLocked(err error) error {
	if p.doubts > 0 && (netfail.Redirects(err) || errors.Is(err, resp.ErrClusterDown)) {
		p.doubts--
		p.tellRouter(err)
		if len(p.unanswered) > 0 {
			p.pingDue = true
			netfail.Signal(p.wake)
		}
		return nil
	}
	if len(p.unanswered) == 0 {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	p.noteAnswerLocked()
	p.requestFailedLocked(p.takeOldestLocked(), err)
	return nil
}

// completeLocked removes the answered request. The server answers in order, so older requests will
// get no answer any more: they fail with errSkipped.
func (p *part) completeLocked(req request) {
	for ahead := slices.Index(p.unanswered, req); ahead >= 0; ahead-- {
		if first := p.takeOldestLocked(); ahead > 0 {
			p.requestFailedLocked(first, errSkipped)
		}
	}
}

// takeOldestLocked removes the request that has its answer. No error about an earlier request follows.
func (p *part) takeOldestLocked() request {
	req := p.unanswered[0]
	p.unanswered, p.doubts = p.unanswered[1:], 0
	return req
}

// requestFailedLocked handles a request that failed with err.
func (p *part) requestFailedLocked(req request, err error) {
	switch ch := req.ch; req.verb {
	case ping:
		p.pingSent = time.Time{} // an error also shows that the server answers
	case subscribe:
		p.refuseLocked(ch, fmt.Errorf("pubsub: %s %q: %w", commandNames[ch.kind][subscribe], ch.name, err), time.Now())
	case unsubscribe:
		ch.state = absent // further messages find no Subscription
		p.updateLocked(ch)
	}
}

// noteAnswerLocked records that the server has answered a request.
func (p *part) noteAnswerLocked() { p.lastAnswer, p.hasAnswered = time.Now(), true }

// temporary reports whether the reason for a refusal goes away by itself.
func temporary(err error) bool {
	return errors.Is(err, errSkipped) || netfail.Reply(err) == netfail.Again
}
