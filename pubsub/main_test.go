package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// dialer connects to one server.
type dialer struct{ cfg conn.Config }

func (d dialer) Stream(ctx context.Context) (*conn.Stream, error) { return conn.DialStream(ctx, d.cfg) }

// bubble runs fn in virtual time, in RESP3 and in RESP2, with a server and a Subscriber. It then
// closes both and checks that no goroutine is left.
func bubble(t *testing.T, cfg pubsub.Config, fn func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber)) {
	t.Helper()
	for _, protocol := range []int{3, 2} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fakeredis.New()
				defer srv.Close()
				s := pubsub.New(dialer{conn.Config{Dial: srv.Dial, Protocol: protocol}}, cfg)
				defer s.Close()
				fn(t, srv, s)
			})
		})
	}
}

// subscribe subscribes, and fails after a minute.
func subscribe(t *testing.T, s *pubsub.Subscriber, channels ...string) *pubsub.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := s.Subscribe(ctx, channels...)
	if err != nil {
		t.Fatalf("Subscribe(%q): %v", channels, err)
	}
	return sub
}

func listen(t *testing.T, s *pubsub.Subscriber, channels ...string) *pubsub.Subscription {
	t.Helper()
	sub, err := s.Listen(channels...)
	if err != nil {
		t.Fatalf("Listen(%q): %v", channels, err)
	}
	return sub
}

// next returns the next event, and fails after a minute.
func next(t *testing.T, sub *pubsub.Subscription) pubsub.Event {
	t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case ev, ok := <-sub.Events():
		if !ok {
			t.Fatal("the events are closed")
		}
		return ev
	case <-timer.C:
		t.Fatal("no event in a minute")
	}
	return pubsub.Event{}
}

// wantKind checks the kind of the next event and returns the event.
func wantKind(t *testing.T, sub *pubsub.Subscription, want pubsub.EventKind) pubsub.Event {
	t.Helper()
	ev := next(t, sub)
	if ev.Kind != want {
		t.Fatalf("event %.200v, want %v", fmt.Sprintf("%+v", ev), want)
	}
	return ev
}

// wantMessages checks that the next events are messages with the given payloads.
func wantMessages(t *testing.T, sub *pubsub.Subscription, payloads ...string) {
	t.Helper()
	for _, want := range payloads {
		if ev := wantKind(t, sub, pubsub.Message); ev.Payload != want {
			t.Fatalf("payload %.200q, want %.200q", ev.Payload, want)
		}
	}
}

// wantNothing checks that no event arrives until all goroutines are idle.
func wantNothing(t *testing.T, sub *pubsub.Subscription) {
	t.Helper()
	synctest.Wait()
	select {
	case ev, ok := <-sub.Events():
		t.Fatalf("event %+v (open: %v), want none", ev, ok)
	default:
	}
}

// wantClosed checks that the events end, after any events left in the queue.
func wantClosed(t *testing.T, sub *pubsub.Subscription) {
	t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-sub.Events():
			if !ok {
				return
			}
		case <-timer.C:
			t.Fatal("the events are not closed")
		}
	}
}

// publish publishes payloads and checks that each reaches one connection.
func publish(t *testing.T, srv *fakeredis.Server, channel string, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		if n := srv.Do("PUBLISH", channel, payload); n != int64(1) {
			t.Fatalf("PUBLISH %s reached %v connections, want 1", channel, n)
		}
	}
}

// wantCommands checks how often the server has received the named commands.
func wantCommands(t *testing.T, srv *fakeredis.Server, want map[string]int) {
	t.Helper()
	synctest.Wait()
	for name, n := range want {
		if got := srv.Count(name); got != n {
			t.Errorf("the server got %d %s, want %d", got, name, n)
		}
	}
}

// theConn returns the ID of the only connection.
func theConn(t *testing.T, srv *fakeredis.Server) int64 {
	t.Helper()
	conns := srv.Conns()
	if len(conns) != 1 {
		t.Fatalf("%d connections, want 1", len(conns))
	}
	return conns[0].ID
}

// answer makes the server answer raw to a command about one channel, or about any channel if
// channel is "".
func answer(srv *fakeredis.Server, name, channel, raw string) {
	intercept(srv, name, channel, fakeredis.Reply(raw))
}

func intercept(srv *fakeredis.Server, name, channel string, action fakeredis.Action) {
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name && (channel == "" || slices.Contains(cmd.Args[1:], channel)) {
			return action
		}
		return fakeredis.Run()
	})
}

// wantErr checks that errors.Is finds target in err.
func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s = %v, want %v", what, err, target)
	}
}
