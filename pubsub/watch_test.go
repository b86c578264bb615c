package pubsub_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
)

// watch returns a Watch of channel "c" and its wake channel.
func watch(t *testing.T, s *pubsub.Subscriber) (*pubsub.Watch, chan struct{}) {
	t.Helper()
	wake := make(chan struct{}, 1)
	w, err := s.Watch(wake, "c")
	if err != nil {
		t.Fatal(err)
	}
	return w, wake
}

// wantTake checks, when all goroutines are idle, whether the Watch has sent to wake, and the result
// of Take.
func wantTake(t *testing.T, what string, w *pubsub.Watch, wake <-chan struct{}, woken, news, up bool) {
	t.Helper()
	synctest.Wait()
	gotWoken := false
	select {
	case <-wake:
		gotWoken = true
	default:
	}
	if gotNews, gotUp := w.Take(); gotWoken != woken || gotNews != news || gotUp != up {
		t.Errorf("%s: woken %v, news %v, up %v, want %v, %v, %v", what, gotWoken, gotNews, gotUp, woken, news, up)
	}
}

func TestWatch(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		w, wake := watch(t, s)
		wantTake(t, "confirmed", w, wake, true, true, true)
		wantTake(t, "nothing more", w, wake, false, false, true)
		publishNumbers(t, srv, 1, 100)
		wantTake(t, "many messages", w, wake, true, true, true)
		wantTake(t, "taken", w, wake, false, false, true)

		srv.Refuse(true)
		srv.KillConns(nil)
		wantTake(t, "interrupted", w, wake, true, false, false)
		srv.Refuse(false)
		time.Sleep(10 * time.Second)
		wantTake(t, "resumed", w, wake, true, true, true)
		srv.KillConns(nil)
		time.Sleep(10 * time.Second)
		wantTake(t, "interrupted and resumed", w, wake, true, true, true)

		second, wakeSecond := watch(t, s)
		wantTake(t, "the second Watch", second, wakeSecond, true, true, true)
		wantTake(t, "the first Watch", w, wake, false, false, true)
		wake <- struct{}{} // by another sender
		publishNumbers(t, srv, 1, 1)
		wantTake(t, "a full wake channel", w, wake, true, true, true)
		wantTake(t, "the second Watch, with room", second, wakeSecond, true, true, true)

		for range 2 {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
		wantTake(t, "closed", w, wake, true, false, false)
		publishNumbers(t, srv, 1, 1)
		wantTake(t, "closed for long", w, wake, false, false, false)
		wantTake(t, "the one that is left", second, wakeSecond, true, true, true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantTake(t, "with the Subscriber", second, wakeSecond, true, false, false)
		if _, err := s.Watch(wake, "c"); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("Watch after Close = %v", err)
		}
		if n := s.Stats().Subscriptions; n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
}

// Move loses no earlier news, and later news wakes the new channel.
func TestWatchMoves(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		w, first := watch(t, s)
		wantTake(t, "confirmed", w, first, true, true, true)
		publishNumbers(t, srv, 1, 1)
		<-first
		then := make(chan struct{}, 1)
		w.Move(then)
		wantTake(t, "before the Move", w, then, false, true, true)
		publishNumbers(t, srv, 1, 1)
		wantTake(t, "after the Move", w, then, true, true, true)
		select {
		case <-first:
			t.Error("the former channel was woken")
		default:
		}
	})
}

func TestWatchOfShards(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		wake := make(chan struct{}, 1)
		w, err := s.SWatch(wake, "c")
		if err != nil {
			t.Fatal(err)
		}
		wantTake(t, "confirmed", w, wake, true, true, true)
		srv.Do("PUBLISH", "c", "1")
		wantTake(t, "of another kind", w, wake, false, false, true)
		srv.Do("SPUBLISH", "c", "1")
		wantTake(t, "a message", w, wake, true, true, true)
		if _, err := s.SWatch(wake); err == nil {
			t.Error("SWatch without a channel: no error")
		}
	})
}
