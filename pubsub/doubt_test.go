package pubsub

import (
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// endedTwice has subscribed to the shard channel "leaves" and sent the request to unsubscribe from it, when the server ends the
// subscription. Redis answers the request with an error then, behind the message that was taken for the answer.
func endedTwice(t *testing.T, s *Subscriber) {
	t.Helper()
	leaves := ask(t, s, "leaves", nil)
	receive(t, s, push('>', "ssubscribe", "leaves", "1"))
	leaves.Close()
	write(t, s)
}

const (
	leavesEnded = ">3\r\n$12\r\nsunsubscribe\r\n$6\r\nleaves\r\n$1\r\n0\r\n"
	leavesMoved = "-MOVED 4501 127.0.0.1:6381\r\n"
)

// The error is not the answer to the request behind: the server has granted that one.
func TestGrantedBehindAnEndedSubscription(t *testing.T) {
	s := unattended(Config{})
	endedTwice(t, s)
	granted := make(chan error, 1)
	sub := ask(t, s, "granted", granted)
	receive(t, s, leavesEnded, leavesMoved, push('>', "ssubscribe", "granted", "1"))
	if err := <-granted; err != nil {
		t.Fatalf("Subscribe of a granted channel = %v", err)
	}
	check(t, s, []*Subscription{sub})
}

// A refusal is about its own channel, not the next one.
func TestRefusedBehindAnEndedSubscription(t *testing.T) {
	s := unattendedOn(&ending{}, Config{})
	endedTwice(t, s)
	forbidden, granted := make(chan error, 1), make(chan error, 1)
	ask(t, s, "forbidden", forbidden)
	ask(t, s, "granted", granted)
	receive(t, s, leavesEnded, leavesMoved, "-"+string(resp.ErrNoPerm)+" no\r\n", push('>', "ssubscribe", "granted", "1"))
	if err := <-granted; err != nil {
		t.Errorf("Subscribe of a granted channel = %v", err)
	}
	if len(forbidden) == 0 {
		t.Error("Subscribe of the forbidden channel has not returned")
	}
}

// A channel granted after its Subscription was closed is unsubscribed.
func TestClosedBehindAnEndedSubscription(t *testing.T) {
	s := unattended(Config{})
	endedTwice(t, s)
	sub := ask(t, s, "granted", nil)
	sub.Close()
	receive(t, s, leavesEnded, leavesMoved, push('>', "ssubscribe", "granted", "1"))
	write(t, s)
	if len(s.parts[""].unanswered) == 0 {
		t.Error("the server goes on to send the messages of a channel that nobody wants")
	}
}

// The error may be the answer to the request behind after all: that one has no other, as a PONG shows, and is repeated.
func TestMovedBehindADoubtfulEnd(t *testing.T) {
	s := unattendedOn(&ending{}, Config{PingInterval: -1, MinBackoff: 1, MaxBackoff: 1})
	endedTwice(t, s)
	ready := make(chan error, 1)
	sub := ask(t, s, "moved", ready)
	receive(t, s, leavesEnded, "-MOVED 4501 127.0.0.1:6381\r\n")
	write(t, s)
	receive(t, s, "+PONG\r\n")
	write(t, s)
	receive(t, s, push('>', "ssubscribe", "moved", "1"))
	select {
	case err := <-ready:
		if err != nil {
			t.Errorf("Subscribe = %v", err)
		}
	default:
		t.Error("Subscribe has not returned")
	}
	check(t, s, []*Subscription{sub})
}
