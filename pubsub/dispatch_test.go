package pubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// nowhere is a Dialer without a server.
type nowhere struct{}

func (nowhere) Stream(ctx context.Context) (*conn.Stream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// unattended returns a connected Subscriber without goroutines. The test plays the keeper, the
// reader and the server.
func unattended(cfg Config) *Subscriber { return unattendedOn(nowhere{}, cfg) }

func unattendedOn(d Dialer, cfg Config) *Subscriber {
	s := New(d, cfg)
	p := s.routeLocked(pattern, "")
	p.running = true
	p.connectLocked(time.Now())
	return s
}

func decode(t testing.TB, raw string) resp.Value {
	t.Helper()
	v, err := resp.NewReader(bytes.NewReader([]byte(raw)), resp.Limits{}).Read()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// push encodes a push of RESP3 or the array of RESP2.
func push(mark byte, words ...string) string {
	out := fmt.Sprintf("%c%d\r\n", mark, len(words))
	for _, w := range words {
		out += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return out
}

var answers = [kindCount][2]string{
	plain:   {subscribe: "subscribe", unsubscribe: "unsubscribe"},
	pattern: {subscribe: "psubscribe", unsubscribe: "punsubscribe"},
	shard:   {subscribe: "ssubscribe", unsubscribe: "sunsubscribe"},
}

// confirm answers the oldest request like a server and reports whether a request was outstanding.
// held records which channels the server has granted.
func confirm(t testing.TB, s *Subscriber, held map[*channel]bool) bool {
	t.Helper()
	if len(s.parts[""].unanswered) == 0 {
		return false
	}
	req := s.parts[""].unanswered[0]
	raw := "+PONG\r\n"
	if req.verb != ping {
		raw = push('>', answers[req.ch.kind][req.verb], req.ch.name, "0")
		held[req.ch] = req.verb == subscribe
	}
	if err := s.parts[""].dispatch(decode(t, raw)); err != nil {
		t.Fatalf("dispatch of the answer to request %+v: %v", req, err)
	}
	return true
}

// settle sends and answers requests until none is left.
func settle(t testing.TB, s *Subscriber, held map[*channel]bool) {
	t.Helper()
	for {
		cmds, _, err := s.parts[""].next(time.Now())
		if err != nil && err != errIdle {
			t.Fatal(err)
		}
		for confirm(t, s, held) {
		}
		if len(cmds) == 0 {
			return
		}
	}
}

func TestDispatchAllocates(t *testing.T) {
	s := unattended(Config{})
	sub, err := s.Listen("c")
	if err != nil {
		t.Fatal(err)
	}
	settle(t, s, make(map[*channel]bool))
	<-sub.Events()
	message := decode(t, push('>', "message", "c", "payload"))
	for _, test := range []struct {
		name    string
		consume bool
		want    float64
	}{{"read at once", true, 0}, {"never read", false, 1}} {
		got := testing.AllocsPerRun(10_000, func() {
			if err := s.parts[""].dispatch(message); err != nil {
				t.Fatal(err)
			}
			if test.consume {
				<-sub.Events()
			}
		})
		if got != test.want {
			t.Errorf("%s: dispatch of a message allocates %v times, want %v", test.name, got, test.want)
		}
	}
	s.Close()
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMemoryOfSubscriptions(t *testing.T) {
	const n, limit = 10_000, 2500
	subs := make([]*Subscription, n)
	before := heap()
	s := unattended(Config{})
	for i := range subs {
		var err error
		if subs[i], err = s.Listen(fmt.Sprintf("redisson_lock__channel:{name:%08d}", i)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, make(map[*channel]bool))
	each := (heap() - before) / n
	t.Logf("%d bytes for a subscription to a channel of its own, with an empty queue", each)
	if each > limit {
		t.Errorf("%d bytes each, want %d at most", each, limit)
	}
	for _, sub := range subs {
		sub.Close()
	}
	settle(t, s, make(map[*channel]bool))
	if s.parts[""].count != 0 || s.subscriptions != 0 || len(s.parts[""].changed) != 0 || len(s.parts[""].refused) != 0 {
		t.Errorf("left: %d channels, %d subscriptions, %d changes, %d refusals",
			s.parts[""].count, s.subscriptions, len(s.parts[""].changed), len(s.parts[""].refused))
	}
}

// check checks that redundant fields agree.
func check(t *testing.T, s *Subscriber, subs []*Subscription) {
	t.Helper()
	count := 0
	asked := make(map[*channel]verb)
	for _, req := range s.parts[""].unanswered {
		if _, twice := asked[req.ch]; twice && req.verb != ping {
			t.Fatalf("two outstanding requests about channel %q", req.ch.name)
		}
		asked[req.ch] = req.verb
	}
	for k, channels := range s.channels {
		for name, ch := range channels {
			count++
			if ch.name != name || int(ch.kind) != k {
				t.Fatalf("channel %q of kind %d is stored as %q of kind %d", ch.name, ch.kind, name, k)
			}
			verb, isAsked := asked[ch]
			if (isAsked && verb == subscribe) != (ch.state == subscribing) || (isAsked && verb == unsubscribe) != (ch.state == unsubscribing) {
				t.Fatalf("channel %q in state %d: outstanding request: %v (verb %d)", name, ch.state, isAsked, verb)
			}
			if len(ch.subs) == 0 && (ch.state == absent || ch.state == refused) {
				t.Fatalf("channel %q in state %d is stored without a Subscription", name, ch.state)
			}
			if ch.changed != slices.Contains(s.parts[""].changed, ch) {
				t.Fatalf("channel %q: changed is %v, but the list says otherwise", name, ch.changed)
			}
			if _, later := s.parts[""].refused[ch]; later != (ch.state == refused) {
				t.Fatalf("channel %q in state %d: scheduled for another request: %v", name, ch.state, later)
			}
			if !ch.changed && (len(ch.subs) > 0) != (ch.state == subscribed) &&
				(ch.state == absent || ch.state == subscribed) {
				t.Fatalf("channel %q in state %d with %d subscriptions needs a request, but is not in changed", name, ch.state, len(ch.subs))
			}
		}
	}
	if count != s.parts[""].count || len(s.parts[""].refused) > count {
		t.Fatalf("%d channels, count is %d, %d refused", count, s.parts[""].count, len(s.parts[""].refused))
	}
	for _, sub := range subs {
		if sub.closed {
			continue // its Subscribe was refused
		}
		missing := 0
		for _, ch := range sub.channels {
			if ch.state != subscribed {
				missing++
			}
			if _, ok := ch.subs[sub]; !ok {
				t.Fatalf("channel %q does not have its subscription", ch.name)
			}
		}
		if sub.missing != missing || sub.up != (missing == 0) {
			t.Fatalf("%d unconfirmed channels, but missing is %d and up %v", missing, sub.missing, sub.up)
		}
	}
}

// FuzzDispatch drives a Subscriber through steps that include values a server would not send. No
// step may panic or make the fields inconsistent. A correct server then confirms every
// subscription.
func FuzzDispatch(f *testing.F) {
	for _, mark := range []byte{'>', '*'} {
		for _, k := range []kind{plain, pattern, shard} {
			wire := push(mark, answers[k][subscribe], "a", "1") + push(mark, answers[k][unsubscribe], "a", "0") + push(mark, "message", "a", "x")
			f.Add([]byte{1 + byte(k)*8, 1, 3, 0, 0, 2, 3, 6, 0, 4, 3, 7, 5 + 31*8, 3, 6, 0}, []byte(wire))
			f.Add([]byte{1, 9, 17, 25, 33, 3, 6, 0, 7, 0, 6, 2, 1, 3, 0, 0}, []byte(wire+wire+push(mark, "pmessage", "a", "b", "c")))
		}
	}
	f.Add([]byte{1, 3, 0, 0, 0, 0, 0}, []byte("-NOPERM no\r\n+PONG\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n_\r\n>3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n"))
	f.Add([]byte{1, 9, 3, 6, 6, 2, 2, 3, 1, 6, 0}, []byte("%1\r\n+a\r\n:1\r\n"))
	f.Add([]byte{1 + 16*8, 1 + 17*8, 3, 7, 7, 1 + 18*8, 3, 6, 2, 3, 7, 0, 0}, []byte(">1\r\n+subscribe\r\n>4\r\n+pmessage\r\n+a\r\n*0\r\n+x\r\n"))
	f.Fuzz(func(t *testing.T, steps, wire []byte) {
		synctest.Test(t, func(t *testing.T) { drive(t, steps[:min(len(steps), 200)], wire) })
	})
}

func drive(t *testing.T, steps, wire []byte) {
	s := unattended(Config{QueueBytes: 300})
	server := resp.NewReader(bytes.NewReader(wire), resp.Limits{})
	var subs []*Subscription
	held := make(map[*channel]bool)
	reconnect := func() {
		s.parts[""].disconnectLocked(errSilent)
		clear(held)
		s.parts[""].connectLocked(time.Now())
	}
	for _, step := range steps {
		switch choice := step >> 3; step % 8 {
		case 0:
			if v, err := server.Read(); err == nil && s.parts[""].dispatch(v) != nil {
				reconnect()
			}
		case 1:
			name := string(rune('a' + choice/3%3))
			var ready chan error
			if choice >= 16 {
				ready = make(chan error, 1)
			}
			sub, err := s.add(kind(choice%3), []string{name, name, "z"}, ready)
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
		case 2:
			if len(subs) > 0 {
				i := int(choice) % len(subs)
				subs[i].Close()
				subs = slices.Delete(subs, i, i+1)
			}
		case 3:
			if _, _, err := s.parts[""].next(time.Now()); err != nil {
				reconnect()
			}
		case 4:
			reconnect()
		case 5:
			time.Sleep(time.Duration(choice) * time.Second)
		case 6:
			confirm(t, s, held)
		case 7:
			if s.parts[""].dispatch(decode(t, "-ERR no\r\n")) != nil {
				reconnect()
			}
		}
		check(t, s, subs)
	}
	reconnect()
	settle(t, s, held)
	check(t, s, subs)
	for _, sub := range subs {
		if !sub.up && !sub.closed {
			t.Fatal("the server never confirmed a subscription")
		}
	}
	for ch, subscribed := range held {
		if wanted := s.channels[ch.kind][ch.name] != nil; wanted != subscribed {
			t.Fatalf("channel %q is wanted: %v, subscribed: %v", ch.name, wanted, subscribed)
		}
	}
}

// Closing the Subscriptions of one channel takes time linear in their number, one by one and all at
// once. Quadratic time would be ten seconds here instead of milliseconds.
func TestClosingManyIsLinear(t *testing.T) {
	const many, limit = 200_000, 5 * time.Second
	var one, all time.Duration
	for range 3 { // the machine may be busy
		s := unattended(Config{})
		watches := make([]*Watch, many)
		for i := range watches {
			var err error
			if watches[i], err = s.Watch(nil, "c", "d"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		for _, w := range watches[:many/2] {
			w.Close()
		}
		one = time.Since(start)
		start = time.Now()
		s.Close()
		all = time.Since(start)
		if got := s.Stats(); got.Subscriptions != 0 || got.Channels != 0 {
			t.Fatalf("Stats = %+v after Close", got)
		}
		if one < limit && all < limit {
			t.Logf("half of %d one by one in %v, the rest in %v", many, one, all)
			return
		}
	}
	t.Errorf("closed half of %d one by one in %v and the rest in %v, want less than %v each", many, one, all, limit)
}

// Slow consumers share the memory of their events, and release the memory after reading.
func TestMemoryOfQueues(t *testing.T) {
	const consumers, messages, payload, bound = 200, 3000, 1000, 1 << 20
	s := unattended(Config{QueueBytes: bound})
	defer s.Close()
	subs := make([]*Subscription, consumers)
	for i := range subs {
		var err error
		if subs[i], err = s.Listen("c"); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, make(map[*channel]bool))
	before := heap()
	for i := range messages {
		if err := s.parts[""].dispatch(decode(t, push('>', "message", "c", strings.Repeat("x", payload)+strconv.Itoa(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap() - before); grown > 10<<20 {
		t.Errorf("%d bytes more for %d consumers that hold the same %d bytes, want 10 MiB at most", grown, consumers, bound)
	}
	for _, sub := range subs {
		for told := 0; told < messages; {
			switch ev := <-sub.Events(); ev.Kind {
			case Message:
				told++
			case Lagged:
				told += ev.N
			}
		}
	}
	if grown := int64(heap() - before); grown > 1<<20 {
		t.Errorf("%d bytes more when all is read, want 1 MiB at most", grown)
	}
}

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
				sub.deliverLocked(&delivery{Event: Event{Kind: Message, Payload: strconv.Itoa(i)}})
				if i%7 == 0 {
					ch.deactivate(absent)
					sub.interruptLocked(Event{Kind: Interrupted, N: i})
					ch.state = subscribed
					sub.missing--
					sub.resumeLocked()
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
	if _, _, err := s.parts[""].next(time.Now()); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, s *Subscriber, raws ...string) {
	t.Helper()
	for _, raw := range raws {
		if err := s.parts[""].dispatch(decode(t, raw)); err != nil {
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

// The server ends a subscription while the request to unsubscribe is on its way, and then answers the request with an error, as
// Redis does. The first message is taken for the answer, and the connection goes on.
func TestUnsubscribedTwice(t *testing.T) {
	for _, answer := range []string{"-MOVED 3999 127.0.0.1:6381\r\n", "-CLUSTERDOWN Hash slot not served\r\n"} {
		s := unattended(Config{})
		leaves, stays := ask(t, s, "leaves", nil), ask(t, s, "stays", nil)
		receive(t, s, push('>', "ssubscribe", "leaves", "1"), push('>', "ssubscribe", "stays", "2"))
		leaves.Close()
		write(t, s)
		receive(t, s, push('>', "sunsubscribe", "leaves", "1"), answer)
		check(t, s, []*Subscription{stays})
		if err := s.parts[""].dispatch(decode(t, "-ERR unknown command\r\n")); err == nil {
			t.Error("an error without a command does not fail the connection")
		}
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
	if n := len(s.parts[""].unanswered); n != 0 {
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
