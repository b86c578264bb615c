package pubsub_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
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
