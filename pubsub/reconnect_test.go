package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
)

func TestLostConnectionIsReplaced(t *testing.T) {
	var log bytes.Buffer
	cfg := pubsub.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, cfg, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		log.Reset()
		one := subscribe(t, s, "a")
		two := listen(t, s, "a", "b")
		wantKind(t, two, pubsub.Resumed)
		three, err := s.PSubscribe(t.Context(), "b*")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			srv.KillConns(nil)
			start := time.Now()
			for _, sub := range []*pubsub.Subscription{one, two, three} {
				if ev := wantKind(t, sub, pubsub.Interrupted); ev.Err == nil {
					t.Error("Interrupted without a reason")
				}
				wantKind(t, sub, pubsub.Resumed)
			}
			if took := time.Since(start); took > 8*time.Millisecond {
				t.Errorf("Resumed after %v, want 8ms at most", took)
			}
			time.Sleep(time.Second)
			publish(t, srv, "a", "x")
			wantMessages(t, one, "x")
			wantMessages(t, two, "x")
			srv.Do("PUBLISH", "b", "y")
			wantMessages(t, two, "y")
			wantMessages(t, three, "y")
		}
		if got, want := s.Stats(), (pubsub.Stats{Channels: 3, Subscriptions: 3, Connected: true, Reconnects: 3}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 8, "PSUBSCRIBE": 4})
		if n := strings.Count(log.String(), "level=WARN"); n != 6 {
			t.Errorf("%d lines logged, want 3 for lost and 3 for new connections:\n%s", n, &log)
		}
	})
}

func TestResumedWaitsForAllChannels(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		quick, slow := subscribe(t, s, "a"), subscribe(t, s, "a", "z")
		intercept(srv, "SUBSCRIBE", "z", fakeredis.Delay(2*time.Second, fakeredis.Run()))
		srv.KillConns(nil)
		start := time.Now()
		wantKind(t, quick, pubsub.Interrupted)
		wantKind(t, slow, pubsub.Interrupted)
		wantKind(t, slow, pubsub.Resumed)
		if took := time.Since(start); took < 2*time.Second || took > 2010*time.Millisecond {
			t.Errorf("Resumed after %v, want 2s", took)
		}
		wantKind(t, quick, pubsub.Resumed)
		wantNothing(t, quick)
	})
}

// Subscribing and closing without a connection takes effect on the next connection.
func TestChangesWhileDisconnected(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		stays, goes := subscribe(t, s, "stays"), subscribe(t, s, "goes")
		srv.Refuse(true)
		srv.KillConns(nil)
		wantKind(t, stays, pubsub.Interrupted)
		wantKind(t, goes, pubsub.Interrupted)
		goes.Close()
		comes := listen(t, s, "comes", "stays")
		time.Sleep(time.Second)
		srv.Refuse(false)
		wantKind(t, stays, pubsub.Resumed)
		wantKind(t, comes, pubsub.Resumed)
		if n := srv.Subscribers("goes"); n != 0 {
			t.Errorf("%d subscribers of a closed channel, want none", n)
		}
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 4, "UNSUBSCRIBE": 0})
	})
}

func TestBackoff(t *testing.T) {
	bubble(t, pubsub.Config{MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
		func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
			sub := subscribe(t, s, "c")
			srv.Refuse(true)
			srv.KillConns(nil)
			before := srv.Dials()
			time.Sleep(10 * time.Second)
			if n := srv.Dials() - before; n < 100 || n > 205 {
				t.Errorf("%d dials in 10 s, too many for pauses of 50 to 100 ms", n)
			}
			srv.Refuse(false)
			start := time.Now()
			wantKind(t, sub, pubsub.Interrupted)
			wantKind(t, sub, pubsub.Resumed)
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("Resumed %v after the server's return, want 100ms at most", took)
			}
		})
}

// The Subscriber pauses between dials if the server closes every connection.
func TestServerThatHangsUp(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		intercept(srv, "SUBSCRIBE", "", fakeredis.Close())
		sub := listen(t, s, "c")
		time.Sleep(10 * time.Second)
		if n := srv.Dials(); n > 35 {
			t.Errorf("%d dials in 10 s", n)
		}
		srv.Intercept(nil)
		wantKind(t, sub, pubsub.Resumed)
	})
}

func TestSilentServerIsNoticed(t *testing.T) {
	cfg := pubsub.Config{PingInterval: 3 * time.Second, Timeout: 2 * time.Second}
	bubble(t, cfg, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		srv.ClearLog()
		time.Sleep(time.Minute)
		if n := srv.Count("PING"); n != 19 && n != 20 {
			t.Errorf("%d PING in a minute, want one every 3 s", n)
		}
		id := theConn(t, srv)
		for after := range 3 {
			time.Sleep(time.Duration(after) * time.Second)
			srv.Mute(true)
			start := time.Now()
			ev := wantKind(t, sub, pubsub.Interrupted)
			if took := time.Since(start); took > cfg.PingInterval+cfg.Timeout {
				t.Errorf("Interrupted after %v, want 5s at most", took)
			}
			if !strings.Contains(ev.Err.Error(), "PING") {
				t.Errorf("the reason is %v", ev.Err)
			}
			srv.Mute(false)
			wantKind(t, sub, pubsub.Resumed)
			publish(t, srv, "c", "x")
			wantMessages(t, sub, "x")
		}
		if theConn(t, srv) == id {
			t.Error("the silent connection is still in use")
		}
	})
}

// Messages do not replace a PONG.
func TestMissingPongBesideMessages(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		intercept(srv, "PING", "", fakeredis.Swallow())
		start := time.Now()
		for {
			srv.Do("PUBLISH", "c", "x")
			if next(t, sub).Kind == pubsub.Interrupted {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("Interrupted after %v, want 10s", took)
		}
	})
}

// The wait for a PONG is extended while many messages arrive, and only then.
func TestPongBehindManyMessages(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		intercept(srv, "PING", "", fakeredis.Swallow())
		for range 300 {
			srv.Do("PUBLISH", "c", strings.Repeat("x", 10_000))
			wantKind(t, sub, pubsub.Message)
			time.Sleep(100 * time.Millisecond)
		}
		start := time.Now()
		wantKind(t, sub, pubsub.Interrupted)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("Interrupted %v after the last message, want 10s at most", took)
		}
	})
}

func TestErrorReplyToPingKeepsTheConnection(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		answer(srv, "PING", "", "-NOPERM this user has no permissions to run the 'ping' command\r\n")
		time.Sleep(10 * time.Minute)
		wantNothing(t, sub)
		if n := srv.Count("PING"); n < 100 {
			t.Errorf("%d PING in 10 minutes", n)
		}
	})
}

func TestPingCanBeSwitchedOff(t *testing.T) {
	bubble(t, pubsub.Config{PingInterval: -1}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "c")
		srv.ClearLog()
		time.Sleep(time.Hour)
		wantNothing(t, sub)
		wantCommands(t, srv, map[string]int{"PING": 0})
	})
}

func TestUnexpectedUnsubscription(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		other, err := s.SSubscribe(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		sub, err := s.SSubscribe(t.Context(), "c", "d")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			srv.Unsubscribe("c")
			if ev := wantKind(t, sub, pubsub.Interrupted); ev.Channel != "c" || ev.Err == nil {
				t.Errorf("event %+v, want c and a reason", ev)
			}
			wantKind(t, sub, pubsub.Resumed)
			srv.Do("SPUBLISH", "c", "x")
			wantMessages(t, sub, "x")
		}
		wantNothing(t, other)
		wantCommands(t, srv, map[string]int{"SSUBSCRIBE": 6})
		if srv.Dials() != 1 {
			t.Errorf("%d dials, want 1", srv.Dials())
		}
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		subscribe(t, s, "c").Close()
		time.Sleep(59 * time.Second)
		if len(srv.Conns()) != 1 {
			t.Error("the connection was closed within a minute")
		}
		subscribe(t, s, "c").Close()
		time.Sleep(59 * time.Second)
		if srv.Dials() != 1 {
			t.Errorf("%d dials, want the connection reused", srv.Dials())
		}
		time.Sleep(2 * time.Second)
		if len(srv.Conns()) != 0 || s.Stats().Connected {
			t.Error("the connection is open after a minute without a subscription")
		}
		sub := subscribe(t, s, "c")
		publish(t, srv, "c", "x")
		wantMessages(t, sub, "x")
		if got := s.Stats(); got.Reconnects != 0 {
			t.Errorf("%d reconnects, want none: nothing was lost", got.Reconnects)
		}
	})
}

// A Subscribe at the moment of the idle timeout gets a new connection.
func TestSubscribeAtTheIdleTimeout(t *testing.T) {
	bubble(t, pubsub.Config{IdleTimeout: time.Second}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		for range 50 {
			subscribe(t, s, "c").Close()
			synctest.Wait()
			time.Sleep(time.Second)
			sub := subscribe(t, s, "c")
			publish(t, srv, "c", "x")
			wantMessages(t, sub, "x")
			sub.Close()
		}
	})
}

func TestNoSubscriptionLeftWhileDialling(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Refuse(true)
		sub := listen(t, s, "c")
		time.Sleep(time.Second)
		sub.Close()
		time.Sleep(time.Second)
		dials := srv.Dials()
		time.Sleep(time.Minute)
		if n := srv.Dials(); n != dials {
			t.Errorf("%d dials without a subscription", n-dials)
		}
	})
}

func TestUnexpectedReplies(t *testing.T) {
	tests := []struct {
		name, raw string
		lost      bool
	}{
		{"an unexpected PONG", "+PONG\r\n", false},
		{"a null channel", ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n", false},
		{"the end of an unknown channel", ">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n", false},
		{"an unexpected confirmation", ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", false},
		{"a second confirmation", ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", false},
		{"an unknown push", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", false},
		{"an empty push", ">0\r\n", true},
		{"a push of a number", ">1\r\n:7\r\n", true},
		{"a message without payload", ">2\r\n$7\r\nmessage\r\n$1\r\nc\r\n", false},
		{"a message that is an array", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*1\r\n:1\r\n", false},
		{"a message to a number", ">3\r\n$8\r\npmessage\r\n:1\r\n:2\r\n", false},
		{"an unexpected reply", "+OK\r\n", true},
		{"a number", ":1\r\n", true},
		{"an array", "*2\r\n:1\r\n:2\r\n", true},
		{"an array of an array", "*1\r\n*0\r\n", true},
		{"a message by a pattern to nowhere", ">4\r\n$8\r\npmessage\r\n$2\r\np*\r\n*0\r\n$1\r\nx\r\n", false},
		{"an unexpected error", "-ERR what\r\n", true},
		{"no RESP", "HTTP/1.1 400 Bad Request\r\n", true},
		{"a length beyond all limits", "$9223372036854775807\r\n", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
				if _, err := s.PSubscribe(t.Context(), "p*"); err != nil {
					t.Fatal(err)
				}
				sub := subscribe(t, s, "c")
				if !srv.Push(theConn(t, srv), test.raw) {
					t.Fatal("the server pushed nothing")
				}
				if test.lost {
					wantKind(t, sub, pubsub.Interrupted)
					wantKind(t, sub, pubsub.Resumed)
				} else {
					wantNothing(t, sub)
				}
				publish(t, srv, "c", "x")
				wantMessages(t, sub, "x")
			})
		})
	}
}

// writes counts the writes to a connection, including the handshake.
type writes struct {
	net.Conn
	n *int
}

func (w writes) Write(b []byte) (int, error) {
	*w.n++
	return w.Conn.Write(b)
}

func TestResubscribesInFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		count := 0
		s := pubsub.New(dialer{conn.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			count = 0
			nc, err := srv.Dial(ctx, network, addr)
			return writes{nc, &count}, err
		}}}, pubsub.Config{})
		defer s.Close()
		var subs []*pubsub.Subscription
		for i := range 5000 {
			subs = append(subs, listen(t, s, fmt.Sprint("channel:", i)))
		}
		for _, sub := range subs {
			wantKind(t, sub, pubsub.Resumed)
		}
		srv.KillConns(nil)
		for _, sub := range subs {
			wantKind(t, sub, pubsub.Interrupted)
			wantKind(t, sub, pubsub.Resumed)
		}
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 10_000})
		if count > 12 {
			t.Errorf("%d writes for 5,000 channels, too many", count)
		}
	})
}

// The Subscriber also pauses between dials if the server answers before it closes the connection.
func TestServerThatAnswersAndHangsUp(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "PSUBSCRIBE" {
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		listen(t, s, "c")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.PSubscribe(ctx, "c*")
		wantErr(t, "PSubscribe", err, context.DeadlineExceeded)
		if n := srv.Dials(); n > 35 {
			t.Errorf("%d dials in 10 s", n)
		}
	})
}

// Many short Subscribes cause no more dials than a single long wait.
func TestShortSubscribesOfADeadServer(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Refuse(true)
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := s.Subscribe(ctx, "c")
			cancel()
			wantErr(t, "Subscribe", err, context.DeadlineExceeded)
			time.Sleep(11 * time.Millisecond)
		}
		if n := srv.Dials(); n > 35 {
			t.Errorf("%d dials in 10 s", n)
		}
	})
}

// An unexpected reply ends the connection at once, even during a blocked write.
func TestUnexpectedReplyDuringWrite(t *testing.T) {
	bubble(t, pubsub.Config{Timeout: -1}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Buffer(1 << 10)
		sub := subscribe(t, s, "c")
		srv.Stall(true)
		other := listen(t, s, string(make([]byte, 1<<16)))
		synctest.Wait()
		start := time.Now()
		srv.Push(theConn(t, srv), "+OK\r\n")
		ev := wantKind(t, sub, pubsub.Interrupted)
		if took := time.Since(start); took != 0 || !strings.Contains(ev.Err.Error(), "without a command") {
			t.Errorf("Interrupted after %v: %v", took, ev.Err)
		}
		srv.Stall(false)
		wantKind(t, sub, pubsub.Resumed)
		wantKind(t, other, pubsub.Resumed)
	})
}

// Each connection gets the whole idle time.
func TestIdleTimeBeginsAnew(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		subscribe(t, s, "c").Close()
		time.Sleep(2 * time.Minute)
		srv.Latency(time.Second)
		sub := listen(t, s, "c")
		synctest.Wait()
		sub.Close()
		time.Sleep(30 * time.Second)
		if len(srv.Conns()) != 1 {
			t.Errorf("%d connections after 30 s, want 1 for a minute", len(srv.Conns()))
		}
	})
}

// A server that accepts connections and closes each because of a request is lost once, and back with its first answer.
func TestLinesOfAServerThatClosesOnRequests(t *testing.T) {
	var log bytes.Buffer
	cfg := pubsub.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, cfg, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		sub := subscribe(t, s, "a")
		log.Reset()
		intercept(srv, "SUBSCRIBE", "a", fakeredis.Close())
		srv.KillConns(nil)
		wantKind(t, sub, pubsub.Interrupted)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "connection lost") != 1 || strings.Count(got, "connected again") != 0 {
			t.Errorf("logged without any answer:\n%s", got)
		}
		srv.Intercept(nil)
		wantKind(t, sub, pubsub.Resumed)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "connection lost") != 1 || strings.Count(got, "connected again") != 1 {
			t.Errorf("logged after the first answer:\n%s", got)
		}
	})
}
