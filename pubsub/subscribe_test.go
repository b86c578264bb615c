package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

func TestSubscribeReturnsWhenConfirmed(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		intercept(srv, "SUBSCRIBE", "b", fakeredis.Delay(3*time.Second, fakeredis.Run()))
		start := time.Now()
		sub := subscribe(t, s, "a", "b")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Subscribe returned after %v, want 3s", took)
		}
		publish(t, srv, "a", "1")
		publish(t, srv, "b", "2")
		publish(t, srv, "a", "3")
		for _, want := range []pubsub.Event{
			{Kind: pubsub.Message, Channel: "a", Payload: "1"},
			{Kind: pubsub.Message, Channel: "b", Payload: "2"},
			{Kind: pubsub.Message, Channel: "a", Payload: "3"},
		} {
			if got := next(t, sub); got != want {
				t.Errorf("event %+v, want %+v", got, want)
			}
		}
		wantNothing(t, sub)
	})
}

func TestListenBeginsWithResumed(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		intercept(srv, "SUBSCRIBE", "b", fakeredis.Delay(time.Second, fakeredis.Run()))
		start := time.Now()
		sub := listen(t, s, "a", "b", "a")
		if time.Since(start) != 0 {
			t.Error("Listen blocked")
		}
		wantKind(t, sub, pubsub.Resumed)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Resumed after %v, want 1s", took)
		}
		publish(t, srv, "a", "x")
		wantMessages(t, sub, "x")

		// A second Subscription finds the channel confirmed.
		other := listen(t, s, "a")
		wantKind(t, other, pubsub.Resumed)
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 2})
	})
}

func TestPatternsAndShardChannels(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		p, err := s.PSubscribe(t.Context(), "a.*", "*.b")
		if err != nil {
			t.Fatal(err)
		}
		sh, err := s.SSubscribe(t.Context(), "a.b")
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.SListen("a.b", "c")
		if err != nil {
			t.Fatal(err)
		}
		wantKind(t, l, pubsub.Resumed)
		plain := subscribe(t, s, "a.b")

		srv.Do("PUBLISH", "a.b", "plain")
		srv.Do("SPUBLISH", "a.b", "sharded")
		got := []pubsub.Event{next(t, p), next(t, p)}
		slices.SortFunc(got, func(a, b pubsub.Event) int { return strings.Compare(a.Pattern, b.Pattern) })
		want := []pubsub.Event{
			{Kind: pubsub.Message, Channel: "a.b", Pattern: "*.b", Payload: "plain"},
			{Kind: pubsub.Message, Channel: "a.b", Pattern: "a.*", Payload: "plain"},
		}
		if !slices.Equal(got, want) {
			t.Errorf("patterns: %+v, want %+v", got, want)
		}
		wantMessages(t, plain, "plain")
		wantMessages(t, sh, "sharded")
		wantMessages(t, l, "sharded")
		if got, want := s.Stats(), (pubsub.Stats{Channels: 5, Subscriptions: 4, Connected: true}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
		for _, sub := range []*pubsub.Subscription{p, sh, l, plain} {
			sub.Close()
		}
		wantCommands(t, srv, map[string]int{"PSUBSCRIBE": 2, "SSUBSCRIBE": 2, "SUBSCRIBE": 1,
			"PUNSUBSCRIBE": 2, "SUNSUBSCRIBE": 2, "UNSUBSCRIBE": 1})
		if got, want := s.Stats(), (pubsub.Stats{Connected: true}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

func TestThousandSubscriptionsAreOne(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		var subs []*pubsub.Subscription
		for range 500 {
			subs = append(subs, listen(t, s, "c"))
		}
		for range 500 {
			subs = append(subs, subscribe(t, s, "c"))
		}
		publish(t, srv, "c", "x")
		for i, sub := range subs {
			if i < 500 {
				wantKind(t, sub, pubsub.Resumed)
			}
			wantMessages(t, sub, "x")
		}
		for _, sub := range subs[1:] {
			sub.Close()
		}
		publish(t, srv, "c", "y")
		wantMessages(t, subs[0], "y")
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 1, "UNSUBSCRIBE": 0})
		subs[0].Close()
		subs[0].Close()
		wantClosed(t, subs[0])
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 1, "UNSUBSCRIBE": 1})
		if srv.Dials() != 1 {
			t.Errorf("%d dials, want 1", srv.Dials())
		}
	})
}

// A Subscribe during the unsubscription of the same channel must not be lost, nor mistake an
// earlier confirmation for its own.
func TestSubscribeRacesWithUnsubscribe(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		keep := subscribe(t, s, "other")
		srv.Latency(10 * time.Millisecond)
		for pause := time.Duration(0); pause <= 30*time.Millisecond; pause += 5 * time.Millisecond {
			subscribe(t, s, "c").Close()
			time.Sleep(pause)
			sub := subscribe(t, s, "c")
			if n := srv.Subscribers("c"); n != 1 {
				t.Fatalf("pause %v: Subscribe returned with %d subscribers", pause, n)
			}
			publish(t, srv, "c", "x")
			wantMessages(t, sub, "x")
			wantNothing(t, sub)
			sub.Close()
			time.Sleep(time.Second)
			if n := srv.Subscribers("c"); n != 0 {
				t.Fatalf("pause %v: %d subscribers are left", pause, n)
			}
		}
		wantNothing(t, keep)
	})
}

// A new Subscription does not receive messages sent for an earlier subscription to the channel.
func TestMessagesBeforeTheConfirmation(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		old := subscribe(t, s, "c")
		srv.Latency(10 * time.Millisecond)
		publish(t, srv, "c", "old")
		old.Close()
		synctest.Wait()
		sub := listen(t, s, "c")
		time.Sleep(time.Second)
		publish(t, srv, "c", "new")
		wantKind(t, sub, pubsub.Resumed)
		wantMessages(t, sub, "new")
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 2, "UNSUBSCRIBE": 1})
	})
}

func TestClosedWhileBeingConfirmed(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Latency(10 * time.Millisecond)
		subscribe(t, s, "other")
		for pause := time.Duration(0); pause <= 30*time.Millisecond; pause += 5 * time.Millisecond {
			sub := listen(t, s, "c")
			time.Sleep(pause)
			sub.Close()
			time.Sleep(time.Second)
			if n := srv.Subscribers("c"); n != 0 {
				t.Fatalf("pause %v: %d subscribers are left", pause, n)
			}
		}
		if got := s.Stats().Channels; got != 1 {
			t.Errorf("%d channels, want 1", got)
		}
	})
}

func TestSubscribeWithoutConfirmation(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		intercept(srv, "SUBSCRIBE", "c", fakeredis.Swallow())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := s.Subscribe(ctx, "c")
		wantErr(t, "Subscribe", err, context.DeadlineExceeded)
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("Subscribe returned after %v, want 200ms", took)
		}

		// The late confirmation finds no Subscription.
		srv.Intercept(nil)
		id := theConn(t, srv)
		srv.Push(id, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 1, "UNSUBSCRIBE": 1})
		sub := subscribe(t, s, "c")
		publish(t, srv, "c", "x")
		wantMessages(t, sub, "x")
		if theConn(t, srv) != id {
			t.Error("the connection was replaced")
		}
	})
}

func TestSubscribeEndsWithItsContext(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		reason := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		_, err := s.Subscribe(ctx, "c")
		wantErr(t, "Subscribe under an ended ctx", err, reason)
		if srv.Dials() != 0 {
			t.Error("a Subscribe under an ended ctx dialled")
		}

		srv.Unreachable(true)
		ctx, cancel = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		start := time.Now()
		_, err = s.PSubscribe(ctx, "c*")
		wantErr(t, "PSubscribe", err, reason)
		if took := time.Since(start); took != time.Second {
			t.Errorf("PSubscribe returned after %v, want 1s", took)
		}
		for _, d := range []time.Duration{0, time.Second} { // a deadline with a cause
			ctx, cancel := context.WithTimeoutCause(t.Context(), d, reason)
			_, err := s.Subscribe(ctx, "c")
			cancel()
			wantErr(t, "Subscribe until a deadline", err, reason)
			wantErr(t, "Subscribe until a deadline", err, context.DeadlineExceeded)
		}
		if got := s.Stats(); got.Channels != 0 || got.Subscriptions != 0 {
			t.Errorf("Stats = %+v, want nothing left", got)
		}
		if _, err := s.Subscribe(t.Context()); err == nil {
			t.Error("Subscribe without a channel: no error")
		}
	})
}

const noPerm = "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"

// A refusal concerns only the Subscriptions to the refused channel, even with many requests
// outstanding.
func TestRefusedChannel(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		answer(srv, "SUBSCRIBE", "secret", noPerm)
		var subs []*pubsub.Subscription
		for i := range 10 {
			subs = append(subs, listen(t, s, fmt.Sprint("before", i)))
		}
		both := listen(t, s, "open", "secret")
		for i := range 10 {
			subs = append(subs, listen(t, s, fmt.Sprint("behind", i)))
		}
		for _, sub := range subs {
			wantKind(t, sub, pubsub.Resumed)
			wantNothing(t, sub)
		}
		ev := wantKind(t, both, pubsub.Interrupted)
		wantErr(t, "Err", ev.Err, resp.ErrNoPerm)
		if ev.Channel != "secret" {
			t.Errorf("Interrupted for %q, want secret", ev.Channel)
		}

		open := subscribe(t, s, "open")
		srv.Latency(10 * time.Millisecond) // makes all of them wait for one answer
		start := time.Now()
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if _, err := s.Subscribe(t.Context(), "other", "secret", "open"); !errors.Is(err, resp.ErrNoPerm) {
					t.Errorf("Subscribe = %v, want NOPERM", err)
				}
			})
		}
		waiting.Wait()
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Errorf("the refusal took %v, want one round trip", took)
		}
		time.Sleep(time.Second)
		wantNothing(t, open)
		if n := srv.Subscribers("other"); n != 0 {
			t.Errorf("%d subscribers after a failed Subscribe, want none", n)
		}
		if len(srv.Conns()) != 1 || srv.Dials() != 1 {
			t.Errorf("%d connections by %d dials, want 1", len(srv.Conns()), srv.Dials())
		}
	})
}

func TestRefusedChannelIsRequestedLessAndLess(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		answer(srv, "SUBSCRIBE", "secret", noPerm)
		sub := listen(t, s, "secret")
		time.Sleep(time.Second)
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": 2})
		time.Sleep(10 * time.Minute)
		n := srv.Count("SUBSCRIBE")
		if n < 10 || n > 30 {
			t.Errorf("%d SUBSCRIBE in 10 minutes, want about 20", n)
		}
		srv.Intercept(nil)
		time.Sleep(time.Minute)
		publish(t, srv, "secret", "x")
		for range n {
			wantKind(t, sub, pubsub.Interrupted)
		}
		wantKind(t, sub, pubsub.Resumed)
		wantMessages(t, sub, "x")

		// A channel closed while refused is not requested again.
		answer(srv, "SUBSCRIBE", "hidden", noPerm)
		hidden := listen(t, s, "hidden")
		wantKind(t, hidden, pubsub.Interrupted)
		hidden.Close()
		n = srv.Count("SUBSCRIBE")
		time.Sleep(10 * time.Minute)
		wantCommands(t, srv, map[string]int{"SUBSCRIBE": n, "UNSUBSCRIBE": 0})
	})
}

func TestSubscribeSurvivesTemporaryErrors(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "SSUBSCRIBE" && cmd.N <= 2 {
				return fakeredis.Reply("-CLUSTERDOWN Hash slot not served\r\n")
			}
			return fakeredis.Run()
		})
		if _, err := s.SSubscribe(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		wantCommands(t, srv, map[string]int{"SSUBSCRIBE": 3})
	})
}

func TestSubscribeFailsWithoutCredentials(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.User("default", "password")
		listener := listen(t, s, "c")
		_, err := s.Subscribe(t.Context(), "c")
		wantErr(t, "Subscribe", err, resp.ErrNoAuth)
		dials := srv.Dials()
		time.Sleep(10 * time.Second)
		if n := srv.Dials() - dials; n > 25 {
			t.Errorf("%d dials in 10 s for a subscription that listens", n)
		}
		wantNothing(t, listener)
	})
}

func TestSubscribeWaitsForTheServer(t *testing.T) {
	bubble(t, pubsub.Config{}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		srv.Refuse(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Subscribe(ctx, "c")
		wantErr(t, "Subscribe", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "refused") {
			t.Errorf("Subscribe = %v, want the reason for the missing connection", err)
		}
		if conn.SafeToRetry(err) || errors.Is(err, conn.ErrUncertain) {
			t.Errorf("Subscribe = %v, want no mention of a command", err)
		}
		time.AfterFunc(10*time.Second, func() { srv.Refuse(false) })
		start := time.Now()
		subscribe(t, s, "c")
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("Subscribe returned after %v, want within 1s of the server's return after 10s", took)
		}
		if n := srv.Dials(); n > 40 {
			t.Errorf("%d dials in 11 s", n)
		}
	})
}

// A channel whose only Subscribe was refused does not affect other channels.
func TestRefusedChannelIsForgotten(t *testing.T) {
	bubble(t, pubsub.Config{IdleTimeout: time.Second}, func(t *testing.T, srv *fakeredis.Server, s *pubsub.Subscriber) {
		answer(srv, "SUBSCRIBE", "secret", noPerm)
		sub := subscribe(t, s, "c")
		for range 3 {
			_, err := s.Subscribe(t.Context(), "secret")
			wantErr(t, "Subscribe", err, resp.ErrNoPerm)
		}
		if got := s.Stats(); got.Channels != 1 || got.Subscriptions != 1 {
			t.Errorf("Stats = %+v, want 1 channel and 1 subscription", got)
		}
		time.Sleep(time.Minute)
		publish(t, srv, "c", "x")
		wantMessages(t, sub, "x")
	})
}

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
