package pubsub_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
)

// publishNumbers publishes the numbers from first to last.
func publishNumbers(t *testing.T, srv *fakeredis.Server, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		publish(t, srv, "c", strconv.Itoa(i))
	}
	synctest.Wait()
}

func TestSlowConsumerLosesTheOldest(t *testing.T) {
	bubble(t, pubsub.Config{Queue: 4}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		slow, quick := subscribe(t, s, "c"), subscribe(t, s, "c")
		for i := 1; i <= 100; i++ {
			publishNumbers(t, srv, i, i)
			wantMessages(t, quick, strconv.Itoa(i))
		}
		if ev := wantKind(t, slow, pubsub.Lagged); ev.N != 96 {
			t.Errorf("Lagged by %d, want 96", ev.N)
		}
		wantMessages(t, slow, "97", "98", "99", "100")
		wantNothing(t, slow)
		if got := s.Stats().Dropped; got != 96 {
			t.Errorf("%d dropped, want 96", got)
		}

		// A full queue is no loss yet, and what was told once is not told again.
		publishNumbers(t, srv, 1, 4)
		wantMessages(t, slow, "1", "2", "3", "4")
		wantNothing(t, slow)
		publishNumbers(t, srv, 1, 6)
		if ev := wantKind(t, slow, pubsub.Lagged); ev.N != 2 {
			t.Errorf("Lagged by %d, want 2", ev.N)
		}
		publishNumbers(t, srv, 7, 7)
		if ev := wantKind(t, slow, pubsub.Lagged); ev.N != 1 {
			t.Errorf("Lagged by %d, want 1", ev.N)
		}
		wantMessages(t, slow, "4", "5", "6", "7")
	})
}

// A long queue loses some more at once than the one for which there is no room.
func TestLongQueueLosesTheOldest(t *testing.T) {
	bubble(t, pubsub.Config{Queue: 64}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		publishNumbers(t, srv, 1, 64+9+8)
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 9+9 {
			t.Errorf("Lagged by %d, want 18", ev.N)
		}
		for i := 19; i <= 81; i++ {
			wantMessages(t, sub, strconv.Itoa(i))
		}
		wantNothing(t, sub)
	})
}

// A full queue keeps the last change of state: a consumer that was told of the interruption will be told of its end.
func TestFullQueueKeepsTheState(t *testing.T) {
	bubble(t, pubsub.Config{Queue: 2}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		publishNumbers(t, srv, 1, 2)
		for range 5 {
			srv.KillConns(nil)
			time.Sleep(time.Second)
		}
		publishNumbers(t, srv, 3, 9)
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 8 {
			t.Errorf("Lagged by %d, want 8", ev.N)
		}
		wantKind(t, sub, pubsub.Resumed)
		wantMessages(t, sub, "9")
		wantNothing(t, sub)
	})
}

func TestQueueOfOne(t *testing.T) {
	bubble(t, pubsub.Config{Queue: 1}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := listen(t, s, "c")
		synctest.Wait()
		publishNumbers(t, srv, 1, 3)
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 3 {
			t.Errorf("Lagged by %d, want 3", ev.N)
		}
		wantKind(t, sub, pubsub.Resumed)
		publishNumbers(t, srv, 4, 5)
		if ev := wantKind(t, sub, pubsub.Lagged); ev.N != 1 {
			t.Errorf("Lagged by %d, want 1", ev.N)
		}
		wantMessages(t, sub, "5")
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
				t.Errorf("All of a closed Subscription yields %+v, %v, want what was in the queue", ev, err)
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
