package pubsub_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// tap is a Dialer that lets the test write to its last connection.
type tap struct {
	cfg    conn.Config
	stream atomic.Pointer[conn.Stream]
}

func (d *tap) Stream(ctx context.Context) (*conn.Stream, error) {
	stream, err := conn.DialStream(ctx, d.cfg)
	if err == nil {
		d.stream.Store(stream)
	}
	return stream, err
}

// write sends a command on the Subscriber's connection, behind the Subscriber's back.
func (d *tap) write(t *testing.T, args ...any) {
	t.Helper()
	if err := d.stream.Load().Write(t.Context(), resp.Cmd(args...)); err != nil {
		t.Fatal(err)
	}
}

// onServers runs fn with a Subscriber of a real server, in RESP2 and RESP3.
func onServers(t *testing.T, cfg pubsub.Config, fn func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap)) {
	t.Helper()
	redistest.RunProtocols(t, func(t *testing.T, srv *redistest.Server, protocol int) {
		d := &tap{cfg: srv.Config()}
		s := pubsub.New(d, cfg)
		defer s.Close()
		fn(t, srv, s, d)
		s.Close()
		redistest.NoGoroutines(t)
	})
}

// receivers publishes and returns the number of connections that got the message.
func receivers(t *testing.T, srv *redistest.Server, command, channel, payload string) int64 {
	t.Helper()
	n, err := srv.Do(command, channel, payload).Int()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnServer(t *testing.T) {
	onServers(t, pubsub.Config{}, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		both := subscribe(t, s, "a", "b") // one command and one confirmation each
		again := subscribe(t, s, "a")
		p, err := s.PSubscribe(t.Context(), "[ab]")
		if err != nil {
			t.Fatal(err)
		}
		if n := receivers(t, srv, "PUBLISH", "a", "1"); n != 2 {
			t.Errorf("PUBLISH reached %d, want the channel and the pattern of one connection", n)
		}
		if n := receivers(t, srv, "PUBLISH", "b", "\x00\r\n"); n != 2 {
			t.Errorf("PUBLISH reached %d, want the channel and the pattern of one connection", n)
		}
		wantMessages(t, both, "1", "\x00\r\n")
		wantMessages(t, again, "1")
		if got, want := next(t, p), (pubsub.Event{Kind: pubsub.Message, Channel: "a", Pattern: "[ab]", Payload: "1"}); got != want {
			t.Errorf("event %+v, want %+v", got, want)
		}
		wantMessages(t, p, "\x00\r\n")
		both.Close()
		p.Close()
		await(t, "only the channel that is left", func() bool {
			return receivers(t, srv, "PUBLISH", "a", "2") == 1 && receivers(t, srv, "PUBLISH", "b", "2") == 0
		})
		wantMessages(t, again, "2")
	})
}

func TestShardChannelsOnServer(t *testing.T) {
	onServers(t, pubsub.Config{}, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		sub, err := s.SSubscribe(t.Context(), "a", "b")
		if !srv.AtLeast(7, 0) {
			if err == nil || !strings.Contains(err.Error(), "unknown command") {
				t.Errorf("SSubscribe = %v, want that the command is unknown", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := receivers(t, srv, "SPUBLISH", "b", "1"); n != 1 {
			t.Errorf("SPUBLISH reached %d, want 1", n)
		}
		wantMessages(t, sub, "1")
		d.write(t, "SUNSUBSCRIBE", "a")
		wantKind(t, sub, pubsub.Interrupted)
		wantKind(t, sub, pubsub.Resumed)
		if n := receivers(t, srv, "SPUBLISH", "a", "2"); n != 1 {
			t.Errorf("SPUBLISH reached %d, want 1", n)
		}
		wantMessages(t, sub, "2")
	})
}

// Messages published before a PING arrive before the PONG, and the Subscriber tells the two apart.
func TestPingBesideMessagesOnServer(t *testing.T) {
	cfg := pubsub.Config{PingInterval: time.Millisecond}
	onServers(t, cfg, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		sub := subscribe(t, s, "c")
		pool := srv.Config()
		pool.Protocol = 3
		publisher, err := conn.DialStream(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		for i := range 1000 {
			if err := publisher.Write(t.Context(), resp.Cmd("PUBLISH", "c", i)); err != nil {
				t.Fatal(err)
			}
			if v, err := publisher.Read(); err != nil || v.Err() != nil {
				t.Fatal(err, v.Err())
			}
			d.write(t, "PING")
		}
		for i := range 1000 {
			wantMessages(t, sub, fmt.Sprint(i))
		}
		if got := s.Stats(); got.Reconnects != 0 || !got.Connected {
			t.Errorf("Stats = %+v, want the first connection", got)
		}
	})
}

// A server answers an UNSUBSCRIBE without subscriptions with a null channel. An UNSUBSCRIBE without
// arguments causes answers that the Subscriber has not requested.
func TestUnsubscribeAllOnServer(t *testing.T) {
	onServers(t, pubsub.Config{}, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		p, err := s.PSubscribe(t.Context(), "p*")
		if err != nil {
			t.Fatal(err)
		}
		d.write(t, "UNSUBSCRIBE")
		sub := subscribe(t, s, "a", "b")
		receivers(t, srv, "PUBLISH", "pa", "1")
		wantMessages(t, p, "1")

		d.write(t, "UNSUBSCRIBE")
		wantKind(t, sub, pubsub.Interrupted)
		wantKind(t, sub, pubsub.Resumed)
		receivers(t, srv, "PUBLISH", "a", "2")
		receivers(t, srv, "PUBLISH", "b", "3")
		wantMessages(t, sub, "2", "3")
		receivers(t, srv, "PUBLISH", "pa", "4")
		wantMessages(t, p, "4")
		if got := s.Stats().Reconnects; got != 0 {
			t.Errorf("%d reconnects, want none", got)
		}
	})
}

func TestKilledOnServer(t *testing.T) {
	onServers(t, pubsub.Config{}, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		var subs []*pubsub.Subscription
		for i := range 1000 {
			subs = append(subs, listen(t, s, fmt.Sprint("c", i), "all"))
		}
		for _, sub := range subs {
			wantKind(t, sub, pubsub.Resumed)
		}
		for round := range 3 {
			if n, err := srv.Do("CLIENT", "KILL", "TYPE", "pubsub").Int(); n != 1 || err != nil {
				t.Fatalf("CLIENT KILL = %d, %v", n, err)
			}
			for _, sub := range subs {
				wantKind(t, sub, pubsub.Interrupted)
				wantKind(t, sub, pubsub.Resumed)
			}
			if n := receivers(t, srv, "PUBLISH", "all", fmt.Sprint(round)); n != 1 {
				t.Errorf("PUBLISH reached %d, want 1", n)
			}
			for _, sub := range subs {
				wantMessages(t, sub, fmt.Sprint(round))
			}
		}
	})
}

func TestStoppedServer(t *testing.T) {
	cfg := pubsub.Config{PingInterval: 50 * time.Millisecond, Timeout: 500 * time.Millisecond}
	onServers(t, cfg, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		d.cfg.DialTimeout = time.Second
		sub := subscribe(t, s, "c")
		// On a slow machine the server may seem dead again: only the last change of state counts.
		until := func(kind pubsub.EventKind) {
			t.Helper()
			for next(t, sub).Kind != kind {
			}
		}
		srv.Pause()
		until(pubsub.Interrupted)
		srv.Continue()
		until(pubsub.Resumed)
		srv.Restart()
		until(pubsub.Interrupted)
		until(pubsub.Resumed)
		await(t, "the only subscriber", func() bool { return receivers(t, srv, "PUBLISH", "c", "x") == 1 })
		if got := s.Stats().Reconnects; got < 2 {
			t.Errorf("%d reconnects, want 2", got)
		}
	})
}

func TestRefusalsOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(6, 2) {
			return // the ACL has no rules for channels
		}
		srv = redistest.Start(t, redistest.Options{
			Binary: srv.Binary(),
			Users:  []redistest.User{{Name: "reader", Password: "secret", Rules: "~* &open:* +@all"}},
		})
		for _, protocol := range []int{2, 3} {
			cfg := srv.Config()
			cfg.Username, cfg.Password, cfg.Protocol = "reader", "secret", protocol
			s := pubsub.New(&tap{cfg: cfg}, pubsub.Config{})
			both := listen(t, s, "open:1", "closed:1")
			open := subscribe(t, s, "open:1")
			wantErr(t, "Err", wantKind(t, both, pubsub.Interrupted).Err, resp.ErrNoPerm)
			_, err := s.Subscribe(t.Context(), "open:2", "closed:2")
			wantErr(t, "Subscribe", err, resp.ErrNoPerm)
			_, err = s.PSubscribe(t.Context(), "closed*")
			wantErr(t, "PSubscribe", err, resp.ErrNoPerm)
			receivers(t, srv, "PUBLISH", "open:1", "x")
			wantMessages(t, open, "x")
			s.Close()

			cfg.Password = "wrong"
			s = pubsub.New(&tap{cfg: cfg}, pubsub.Config{})
			_, err = s.Subscribe(t.Context(), "open:1")
			wantErr(t, "Subscribe", err, resp.ErrWrongPass)
			s.Close()
		}
	})
}

// await polls until the condition holds, for at most redistest.Patience.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(redistest.Patience); !yes(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

// A node that loses a slot ends the subscriptions to its shard channels, and refuses requests about
// them until it has the slot again.
func TestSlotMovesOnServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return
		}
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Args: []string{"--cluster-enabled", "yes"}})
		srv.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
		slot, err := srv.Do("CLUSTER", "KEYSLOT", "{c}").Int()
		if err != nil {
			t.Fatal(err)
		}
		for _, protocol := range []int{2, 3} {
			cfg := srv.Config()
			cfg.Protocol = protocol
			s := pubsub.New(&tap{cfg: cfg}, pubsub.Config{MaxBackoff: 10 * time.Millisecond})
			sub := sSubscribe(t, s, "{c}1", "{c}2")
			for range 20 {
				leaves := sSubscribe(t, s, "{c}3")
				leaves.Close() // concurrently with the loss of the slot
				srv.Do("CLUSTER", "DELSLOTS", slot)
				wantKind(t, sub, pubsub.Interrupted)
				subscribe(t, s, "other").Close() // the answer follows all outstanding answers
				srv.Do("CLUSTER", "ADDSLOTS", slot)
				for next(t, sub).Kind != pubsub.Resumed {
				}
				for _, channel := range []string{"{c}1", "{c}2"} {
					if n := receivers(t, srv, "SPUBLISH", channel, channel); n != 1 {
						t.Fatalf("SPUBLISH to %s reached %d, want 1", channel, n)
					}
				}
				wantMessages(t, sub, "{c}1", "{c}2")
			}
			s.Close()
		}
	})
}

func sSubscribe(t *testing.T, s *pubsub.Subscriber, channels ...string) *pubsub.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := s.SSubscribe(ctx, channels...)
	if err != nil {
		t.Fatalf("SSubscribe(%q): %v", channels, err)
	}
	return sub
}

// burst publishes the numbers from 0 to n-1 in one pipeline.
func burst(t *testing.T, ctx context.Context, cfg conn.Config, channel string, n int) {
	t.Helper()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		t.Error(err)
		return
	}
	defer pool.Close()
	const batch = 10_000
	for first := 0; first < n; first += batch {
		var cmds []resp.Command
		for i := first; i < min(first+batch, n); i++ {
			cmds = append(cmds, resp.Cmd("PUBLISH", channel, strconv.Itoa(i)))
		}
		if _, err := pool.SendBatch(ctx, cmds); err != nil {
			t.Error(err)
			return
		}
	}
}

// A fast consumer receives every message of a burst. A slow consumer beside it learns how many
// messages it lost.
func TestBurstOnServer(t *testing.T) {
	const messages = 100_000
	cfg := pubsub.Config{Timeout: time.Minute} // for a busy machine
	onServers(t, cfg, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		attentive, slow := subscribe(t, s, "c"), subscribe(t, s, "c")
		go burst(t, t.Context(), srv.Config(), "c", messages)
		for i := range messages {
			if ev := next(t, attentive); ev.Kind != pubsub.Message || ev.Payload != strconv.Itoa(i) {
				t.Fatalf("event %+v, want message %d", ev, i)
			}
		}
		told := 0
		for last := ""; last != strconv.Itoa(messages-1); {
			switch ev := next(t, slow); ev.Kind {
			case pubsub.Message:
				told, last = told+1, ev.Payload
			case pubsub.Lagged:
				told += ev.N
			}
		}
		if told != messages {
			t.Errorf("the slow consumer was told of %d messages, want %d", told, messages)
		}
	})
}

// TestFailover moves a subscription to the new master. The consumer receives Interrupted, Resumed
// and the messages published on the new master. The old master, still running, keeps no
// subscription.
func TestFailover(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		pool, err := conn.Open(t.Context(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		events := pubsub.New(pool, pubsub.Config{})
		defer events.Close()
		sub, err := events.Subscribe(t.Context(), "news")
		if err != nil {
			t.Fatal(err)
		}
		old := s.Master()
		s.Failover()
		master := s.AwaitMaster(old)
		for _, want := range []pubsub.EventKind{pubsub.Interrupted, pubsub.Resumed} {
			if ev := nextEvent(t, sub); ev.Kind != want {
				t.Fatalf("event %+v, want %v", ev, want)
			}
		}
		if n := receivers(t, master, "PUBLISH", "news", "hello"); n != 1 {
			t.Errorf("%d receivers at the new master, want 1", n)
		}
		if ev := nextEvent(t, sub); ev.Kind != pubsub.Message || ev.Payload != "hello" {
			t.Errorf("event %+v, want the message", ev)
		}
		await(t, "the old master to be left alone", func() bool {
			n, err := old.Do("PUBSUB", "NUMSUB", "news").At(1).Int()
			return err == nil && n == 0
		})
	})
}

// nextEvent waits for an event in real time.
func nextEvent(t *testing.T, sub *pubsub.Subscription) pubsub.Event {
	t.Helper()
	select {
	case ev := <-sub.Events():
		return ev
	case <-time.After(redistest.Patience):
		t.Fatal("no event")
	}
	return pubsub.Event{}
}
