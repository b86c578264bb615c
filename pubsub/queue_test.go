package pubsub_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
)

// eventsCap is the capacity of a Subscription's Go channel.
const eventsCap = 16

// publishNumbers publishes the numbers from first to last.
func publishNumbers(t *testing.T, srv *fakeredis.Server, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		publish(t, srv, "c", strconv.Itoa(i))
	}
	synctest.Wait()
}

// drain receives until message last, and checks that the messages are consecutive numbers. It
// returns their number and the first event.
func drain(t *testing.T, sub *pubsub.Subscription, last int) (messages int, first pubsub.Event) {
	t.Helper()
	number := 0
	for first = next(t, sub); number != last; {
		ev := first
		if messages > 0 || ev.Kind != pubsub.Message {
			ev = wantKind(t, sub, pubsub.Message)
		}
		n, err := strconv.Atoi(ev.Payload)
		if err != nil || messages > 0 && n != number+1 {
			t.Fatalf("message %q after %d", ev.Payload, number)
		}
		number = n
		messages++
	}
	return messages, first
}

// eventBytes returns the size of a message with the payload number on channel "c".
func eventBytes(number int) int { return 100 + len("c") + len(strconv.Itoa(number)) }

func TestSlowConsumerLosesTheOldest(t *testing.T) {
	for _, room := range []int{1, 2, 4, 15, 16, 17, 64, 1000} {
		bytes := room * eventBytes(10_000)
		bubble(t, pubsub.Config{QueueBytes: bytes}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
			slow, quick := subscribe(t, s, "c"), subscribe(t, s, "c")
			total, dropped := 10_000, 0
			for round := range 2 {
				count := 3*room + 2
				for i := total; i < total+count; i++ {
					publishNumbers(t, srv, i, i)
					wantMessages(t, quick, strconv.Itoa(i))
				}
				total += count
				messages, first := drain(t, slow, total-1)
				dropped += first.N
				if first.Kind != pubsub.Lagged || first.N+messages != count {
					t.Errorf("round %d, room for %d: %d messages after %+v, want %d in total", round, room, messages, first, count)
				}
				if got := messages * eventBytes(10_000); got > bytes || got < bytes-bytes/8-2*eventBytes(10_000) {
					t.Errorf("round %d: the queue held %d bytes, want nearly %d", round, got, bytes)
				}
				wantNothing(t, slow)
			}
			if got := s.Stats().Dropped; got != int64(dropped) {
				t.Errorf("%d dropped, want %d", got, dropped)
			}
		})
	}
}

// A message larger than the queue is received like any other, and displaces all other events.
func TestMessageLargerThanTheQueue(t *testing.T) {
	bubble(t, pubsub.Config{QueueBytes: 1000}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		large := strings.Repeat("x", 5000)
		publish(t, srv, "c", large)
		wantMessages(t, sub, large)
		for _, payload := range []string{"1", large, "2", "3", large} {
			publish(t, srv, "c", payload)
			synctest.Wait()
		}
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 4 {
			t.Errorf("Lagged by %d, want 4", ev.N)
		}
		wantMessages(t, sub, large)
		wantNothing(t, sub)
		publish(t, srv, "c", large)
		publish(t, srv, "c", "4")
		synctest.Wait()
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 1 {
			t.Errorf("Lagged by %d, want 1", ev.N)
		}
		wantMessages(t, sub, "4")
	})
}

func TestQueueWithoutBound(t *testing.T) {
	bubble(t, pubsub.Config{QueueBytes: -1}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		large := strings.Repeat("x", 1<<20)
		for range 40 {
			publish(t, srv, "c", large)
		}
		for range 40 {
			wantMessages(t, sub, large)
		}
		wantNothing(t, sub)
	})
}

// A full queue keeps the last change of state: Resumed is never lost after Interrupted.
func TestFullQueueKeepsTheState(t *testing.T) {
	for _, room := range []int{1, 2, 30} {
		bubble(t, pubsub.Config{QueueBytes: room * eventBytes(1)}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
			sub := subscribe(t, s, "c")
			publishNumbers(t, srv, 1, 2)
			for range 5 {
				srv.KillConns(nil)
				time.Sleep(time.Second)
			}
			publishNumbers(t, srv, 3, 2+3*room)
			ev := wantKind(t, sub, pubsub.Lagged)
			wantKind(t, sub, pubsub.Resumed)
			if messages, _ := drain(t, sub, 2+3*room); messages+ev.N != 2+3*room {
				t.Errorf("%d messages after Lagged by %d, want %d", messages, ev.N, 2+3*room)
			}
			wantNothing(t, sub)
		})
	}
}

// Interrupted follows all earlier messages and precedes all later messages, however many wait.
func TestInterruptionKeepsItsPlace(t *testing.T) {
	for _, n := range []int{3, eventsCap, 100} {
		bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
			sub := subscribe(t, s, "c")
			publishNumbers(t, srv, 1, n)
			srv.KillConns(nil)
			time.Sleep(time.Second)
			publishNumbers(t, srv, 1, n)
			drain(t, sub, n)
			wantKind(t, sub, pubsub.Interrupted)
			wantKind(t, sub, pubsub.Resumed)
			drain(t, sub, n)
			wantNothing(t, sub)
		})
	}
}

// Close ends the feeder. The events in the Go channel can still be received.
func TestCloseWithBacklog(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		closed, stays := subscribe(t, s, "c"), subscribe(t, s, "c")
		publishNumbers(t, srv, 1, 100)
		for range 2 {
			if err := closed.Close(); err != nil {
				t.Error(err)
			}
		}
		publishNumbers(t, srv, 101, 200)
		n := 0
		for ev := range closed.Events() {
			if n++; ev.Payload != strconv.Itoa(n) {
				t.Errorf("event %+v after Close, want message %d", ev, n)
			}
		}
		if n > eventsCap {
			t.Errorf("%d events after Close, want %d at most", n, eventsCap)
		}
		drain(t, stays, 200)
		publishNumbers(t, srv, 1, 100)
		s.Close()
		wantClosed(t, stays)
	})
}

func TestAll(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		publishNumbers(t, srv, 1, 3)
		for ev, err := range sub.All(t.Context()) {
			if err != nil || ev.Payload != "1" {
				t.Fatalf("All yields %+v, %v, want 1", ev, err)
			}
			break
		}

		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		var got []string
		var last error
		for ev, err := range sub.All(ctx) {
			if last = err; err == nil {
				got = append(got, ev.Payload)
			}
		}
		if len(got) != 2 || got[0] != "2" || got[1] != "3" || last != reason {
			t.Errorf("All yields %q and ends with %v, want 2, 3 and the cause", got, last)
		}

		publishNumbers(t, srv, 4, 4)
		sub.Close()
		for ev, err := range sub.All(t.Context()) {
			if err != nil || ev.Payload != "4" {
				t.Errorf("All of a closed Subscription yields %+v, %v, want the rest of the queue", ev, err)
			}
		}
	})
}

func TestEventKindString(t *testing.T) {
	for kind, want := range map[pubsub.EventKind]string{
		0: "EventKind(?)", pubsub.Message: "Message", pubsub.Interrupted: "Interrupted", pubsub.Interrupted + 1: "EventKind(?)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("EventKind %d is %q, want %q", kind, got, want)
		}
	}
}
