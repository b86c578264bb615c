package pubsub

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// A consumer that receives while the queue overflows gets events in the order sent. Lagged counts
// the missing messages.
func TestOverflowKeepsTheOrder(t *testing.T) {
	const messages = 100_000
	for _, queue := range []int{1, 500, 10_000, 1_000_000} {
		s := unattended(Config{QueueBytes: queue})
		sub, err := s.Listen("c")
		if err != nil {
			t.Fatal(err)
		}
		settle(t, s, make(map[*channel]bool))
		go func() {
			ch := s.channels[plain]["c"]
			for i := 1; i <= messages; i++ {
				s.mu.Lock()
				sub.deliverLocked(&Event{Kind: Message, Payload: strconv.Itoa(i)}, nil)
				if i%7 == 0 {
					ch.deactivate(absent)
					sub.interruptLocked(Event{Kind: Interrupted, N: i})
					ch.state = subscribed
					sub.confirmLocked()
				}
				s.mu.Unlock()
			}
		}()
		last, told := 0, 0
		var state Event
		for told < messages || state.Kind != Resumed {
			ev := <-sub.Events()
			switch ev.Kind {
			case Message:
				n, err := strconv.Atoi(ev.Payload)
				if err != nil || n <= last {
					t.Fatalf("queue of %d: message %q after %d", queue, ev.Payload, last)
				}
				last = n
				told++
			case Lagged:
				told += ev.N
			case Interrupted:
				if ev.N < state.N {
					t.Fatalf("queue of %d: interruption %d after %d", queue, ev.N, state.N)
				}
				state = ev
			case Resumed:
				state.Kind = Resumed
			}
		}
		if told != messages || last != messages {
			t.Errorf("queue of %d: %d messages received or counted, the last of them %d, want %d", queue, told, last, messages)
		}
		s.Close()
	}
}

// ask adds a Subscription to a shard channel and lets the Subscriber send the request.
func ask(t *testing.T, s *Subscriber, name string, ready chan error) *Subscription {
	t.Helper()
	sub, err := s.add(shard, []string{name}, ready)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s)
	return sub
}

// event returns the next event, or the zero Event.
func event(sub *Subscription) Event {
	select {
	case ev := <-sub.Events():
		return ev
	default:
		return Event{}
	}
}

func write(t *testing.T, s *Subscriber) {
	t.Helper()
	if _, _, err := s.next(time.Now()); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, s *Subscriber, raws ...string) {
	t.Helper()
	for _, raw := range raws {
		if err := s.dispatch(decode(t, raw)); err != nil {
			t.Errorf("dispatch of %q: %v", raw, err)
		}
	}
}

// When a slot moves away, a cluster node ends the subscriptions and answers requests with an error.
// A concurrent unsubscription does not confuse the Subscriber.
func TestUnexpectedUnsubscriptionIsNotTheAnswer(t *testing.T) {
	const moved = "-MOVED 3999 127.0.0.1:6381\r\n"
	confirmed := func(word, name string) string { return push('>', word, name, "0") }
	for _, answer := range []string{moved, confirmed("sunsubscribe", "leaves")} {
		s := unattended(Config{})
		leaves := ask(t, s, "leaves", nil)
		receive(t, s, confirmed("ssubscribe", "leaves"))

		refused, granted := make(chan error, 1), make(chan error, 1)
		ask(t, s, "refused", refused)
		leaves.Close()
		write(t, s)
		ask(t, s, "granted", granted)
		receive(t, s, confirmed("sunsubscribe", "leaves"), moved, answer, confirmed("ssubscribe", "granted"))
		select {
		case err := <-refused:
			if !errors.Is(err, resp.ErrMoved) {
				t.Errorf("the refused channel: %v, want MOVED", err)
			}
		default:
			t.Error("Subscribe of the refused channel has not returned")
		}
		select {
		case err := <-granted:
			if err != nil {
				t.Errorf("the granted channel: %v", err)
			}
		default:
			t.Error("Subscribe of the granted channel has not returned")
		}
		if got := s.Stats(); got.Channels != 1 || got.Subscriptions != 1 {
			t.Errorf("Stats = %+v, want one channel left", got)
		}
		check(t, s, nil)
	}
}

// A request without an answer, although a later request was answered, is sent again.
func TestUnansweredRequestIsRepeated(t *testing.T) {
	s := unattended(Config{PingInterval: time.Nanosecond})
	ready := make(chan error, 1)
	waits, listens := ask(t, s, "c", ready), ask(t, s, "c", nil)
	leaves := ask(t, s, "leaves", nil)
	receive(t, s, push('>', "ssubscribe", "c", "1"), push('>', "ssubscribe", "leaves", "2"))
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	leaves.Close()
	again := ask(t, s, "d", nil)
	receive(t, s, "+PONG\r\n")
	check(t, s, []*Subscription{waits, listens, again})
	if n := len(s.asked.queue) - s.asked.first; n != 0 {
		t.Errorf("%d requests without an answer after PONG", n)
	}
	if ev := event(again); ev.Kind != Interrupted || ev.Err == nil || !strings.Contains(ev.Err.Error(), "answer") {
		t.Errorf("event %+v, want Interrupted because of the missing answer", ev)
	}

	// The missing answer arrives.
	receive(t, s, push('>', "ssubscribe", "d", "2"))
	check(t, s, []*Subscription{waits, listens, again})
	if ev := event(again); ev.Kind != Resumed {
		t.Errorf("event %+v, want Resumed", ev)
	}
}

// ending is a Router that counts the ends of subscriptions.
type ending struct {
	nowhere
	ends int
}

func (e *ending) Route(string) string { return "" }
func (e *ending) StreamTo(ctx context.Context, _ string) (*conn.Stream, error) {
	return e.Stream(ctx)
}
func (e *ending) Refused(_ string, err error) {
	if errors.Is(err, errUnsubscribed) {
		e.ends++
	}
}

// The Router learns that the server has ended a subscription, whether this process was about to end it or has forgotten it.
func TestRouterLearnsOfEveryEnd(t *testing.T) {
	gone := push('>', "sunsubscribe", "leaves", "0")
	for _, then := range []string{"subscribed", "closed", "subscribed again"} {
		e := &ending{}
		s := unattendedOn(e, Config{})
		sub := ask(t, s, "leaves", nil)
		receive(t, s, push('>', "ssubscribe", "leaves", "1"))
		if then != "subscribed" {
			sub.Close()
			write(t, s)
			receive(t, s, gone)
			if e.ends != 0 {
				t.Errorf("%s: the Router was told of the end that this process asked for", then)
			}
		}
		if then == "subscribed again" {
			sub = ask(t, s, "leaves", nil)
		}
		receive(t, s, gone)
		if e.ends != 1 {
			t.Errorf("%s: the Router was told %d times, want once", then, e.ends)
		}
		sub.Close()
		check(t, s, nil)
	}
}
