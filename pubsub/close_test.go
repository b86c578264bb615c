package pubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
)

// stages are the states of a Subscriber in which the tests close it.
var stages = []struct {
	name  string
	stage func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber)
}{
	{"unused", func(*testing.T, *fakeredis.Server, *pubsub.Subscriber) {}},
	{"just begun", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) { listen(t, s, "c") }},
	{"dialling", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Unreachable(true)
		listen(t, s, "c")
		synctest.Wait()
	}},
	{"in the handshake", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Mute(true)
		listen(t, s, "c")
		synctest.Wait()
	}},
	{"pausing", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Refuse(true)
		listen(t, s, "c")
		time.Sleep(10*time.Second + time.Nanosecond)
	}},
	{"not confirmed", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		intercept(srv, "SUBSCRIBE", "", fakeredis.Swallow())
		listen(t, s, "c")
		synctest.Wait()
	}},
	{"refused", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		answer(srv, "SUBSCRIBE", "", noPerm)
		listen(t, s, "c")
		synctest.Wait()
	}},
	{"subscribed", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) { subscribe(t, s, "c") }},
	{"writing", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Buffer(1 << 10)
		subscribe(t, s, "c")
		srv.Stall(true)
		for range 100 {
			listen(t, s, string(make([]byte, 1<<10)))
		}
		listen(t, s, string(make([]byte, 1<<16)))
		synctest.Wait()
	}},
	{"mute", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		subscribe(t, s, "c")
		srv.Mute(true)
		time.Sleep(6 * time.Second)
	}},
	{"idle", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		subscribe(t, s, "c").Close()
		synctest.Wait()
	}},
	{"after idling", func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		subscribe(t, s, "c").Close()
		time.Sleep(2 * time.Minute)
	}},
}

// Close joins all goroutines in every state: otherwise the bubble would not end.
func TestCloseAtEveryStage(t *testing.T) {
	for _, test := range stages {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
				test.stage(t, srv, s)
				closeAndCheck(t, srv, s)
			})
		})
	}
}

func closeAndCheck(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
	t.Helper()
	sub, err := s.Listen("c", "d")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(start); took != 0 {
		t.Errorf("Close took %v", took)
	}
	srv.Stall(false)
	synctest.Wait()
	wantClosed(t, sub)
	dials := srv.Dials()
	_, err = s.Subscribe(t.Context(), "c")
	wantErr(t, "Subscribe after Close", err, conn.ErrClosed)
	_, err = s.Listen("c")
	wantErr(t, "Listen after Close", err, conn.ErrClosed)
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	time.Sleep(time.Minute)
	if n := srv.Dials(); n != dials {
		t.Errorf("%d dials after Close, want none", n-dials)
	}
	if got := s.Stats(); got.Channels != 0 || got.Subscriptions != 0 || got.Connected {
		t.Errorf("Stats = %+v after Close", got)
	}
	if n := len(srv.Conns()); n != 0 {
		t.Errorf("%d connections after Close, want none", n)
	}
	sub.Close()
}

func TestCloseEndsSubscribe(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Refuse(true)
		time.AfterFunc(time.Second, func() { s.Close() })
		start := time.Now()
		_, err := s.Subscribe(t.Context(), "a", "b")
		wantErr(t, "Subscribe", err, conn.ErrClosed)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Subscribe returned after %v, want 1s", took)
		}
	})
}

// All operations run concurrently, for the race detector. The final state must still be right.
func TestManyAtOnce(t *testing.T) {
	bubble(t, pubsub.Config{QueueBytes: 1}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		keep := subscribe(t, s, "a", "b", "c")
		srv.Latency(time.Millisecond)
		var users sync.WaitGroup
		for i := range 20 {
			users.Go(func() {
				for j := range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(j%7)*time.Millisecond)
					sub, err := s.Subscribe(ctx, string(rune('a'+(i+j)%5)), "d")
					cancel()
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Subscribe: %v", err)
						}
						continue
					}
					time.Sleep(time.Duration(i%3) * time.Millisecond)
					sub.Close()
				}
			})
		}
		for range 10 {
			time.Sleep(9 * time.Millisecond)
			srv.KillConns(nil)
		}
		users.Wait()
		time.Sleep(time.Minute)
		for _, channel := range []string{"a", "b", "c"} {
			publish(t, srv, channel, channel)
		}
		for _, channel := range []string{"d", "e"} {
			if n := srv.Subscribers(channel); n != 0 {
				t.Errorf("%s has %d subscribers, want none", channel, n)
			}
		}
		time.Sleep(time.Second)
		wantKind(t, keep, pubsub.Lagged)
		wantKind(t, keep, pubsub.Resumed)
		wantMessages(t, keep, "c")
		if got := s.Stats(); got.Channels != 3 || got.Subscriptions != 1 {
			t.Errorf("Stats = %+v, want 3 channels and 1 subscription", got)
		}
	})
}
