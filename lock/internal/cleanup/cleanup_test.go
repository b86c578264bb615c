package cleanup

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

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// server answers each batch after latency, each command with 1, or the batch with an error.
type server struct {
	latency time.Duration
	begin   time.Time
	fail    func(name string) error

	mu      sync.Mutex
	batches []string // time since begin, number of commands, the first key of the first command; guarded by mu
}

func (s *server) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	replies, err := s.SendBatch(ctx, []resp.Command{cmd})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], nil
}

func (s *server) SendBatch(_ context.Context, cmds []resp.Command) (replies []resp.Value, err error) {
	words := slices.Collect(cmds[0].Args())
	name := words[min(3, len(words)-1)]
	s.mu.Lock()
	s.batches = append(s.batches, fmt.Sprintf("%v %s x%d %s", time.Since(s.begin), words[0], len(cmds), name))
	s.mu.Unlock()
	time.Sleep(s.latency)
	if s.fail != nil {
		if err := s.fail(name); err != nil {
			return nil, err
		}
	}
	for range cmds {
		v, err := resp.NewReader(strings.NewReader(":1\r\n"), resp.Limits{}).Read()
		if err != nil {
			return nil, err
		}
		replies = append(replies, v)
	}
	return replies, nil
}

var testScript = script.New("return 1")

// task is a Work with one request.
type task struct {
	Simple
	name string
	rank Rank
	size int
	done []error
}

func (w *task) Name() string       { return w.name }
func (w *task) Rank() Rank         { return w.rank }
func (w *task) Size() int          { return max(1, w.size) }
func (w *task) Finish(err error)   { w.done = append(w.done, err) }
func (w *task) Count(n *Abandoned) { n.Releases++ }
func (w *task) Call() *remote.Call { return &remote.Call{Script: testScript, Keys: []string{w.name}} }

func (w *task) Answered(resp.Value, bool) Result { return Result{Done: true} }

func zero[T any](*T) *T { return new(T) }

// start returns a Cleanup of a server.
func start(s *server) *Cleanup {
	s.begin = time.Now()
	r := &remote.Server{Doer: s}
	r.Log = zero(r.Log) // silent
	clocks := remote.NewClocks(r)
	return New(Config{
		Server: r, Clocks: clocks, Runner: remote.NewRunner(r, clocks, nil),
		Sweep:     func(bool) bool { return false },
		Added:     func(Work) func(error) { return nil },
		Refused:   func(err error) error { return err },
		Uncertain: errors.New("uncertain"), Ended: errors.New("ended"),
	})
}

func take(u *Cleanup, tasks ...*task) {
	for _, w := range tasks {
		u.Take(NewJob(w, time.Now().Add(time.Minute), false))
	}
}

func (s *server) check(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.batches, want) {
		t.Errorf("batches:\n%s\nwant:\n%s", strings.Join(s.batches, "\n"), strings.Join(want, "\n"))
	}
}

// A server has one batch at a time; what comes meanwhile is the next batch, releases first.
func TestOneBatchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{latency: 10 * time.Millisecond}
		u := start(s)
		take(u, &task{name: "a"})
		time.Sleep(time.Millisecond)
		take(u, &task{name: "undo", rank: Undo}, &task{name: "change", rank: Change}, &task{name: "release", rank: Release})
		synctest.Wait()
		if abandoned := u.Close(t.Context()); abandoned != (Abandoned{}) {
			t.Errorf("abandoned: %+v", abandoned)
		}
		s.check(t, "0s EVALSHA x1 a", "10ms EVALSHA x3 release")
	})
}

// A batch has so many locks that callers on the same connection wait for a moment only.
func TestBatchIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{latency: 10 * time.Millisecond}
		u := start(s)
		take(u, &task{name: "a"})
		time.Sleep(time.Millisecond)
		take(u, &task{name: "large", size: 2 * batchSize}, &task{name: "half", size: batchSize / 2}, &task{name: "rest", size: batchSize / 2}, &task{name: "one"})
		u.Close(t.Context())
		s.check(t, "0s EVALSHA x1 a", "10ms EVALSHA x1 large", "20ms EVALSHA x2 half", "30ms EVALSHA x1 one")
	})
}

// A refused request is repeated after growing pauses, and delays no first request.
func TestRepeatsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{latency: 10 * time.Millisecond}
		failures := 0
		s.fail = func(name string) error {
			if name == "a" && failures < 3 {
				failures++
				return resp.Error("OOM no memory")
			}
			return nil
		}
		u := start(s)
		w := &task{name: "a"}
		take(u, w)
		time.Sleep(35 * time.Millisecond) // the first repeat is under way
		take(u, &task{name: "b"})
		time.Sleep(time.Second)
		synctest.Wait()
		u.Close(t.Context())
		s.check(t, "0s EVALSHA x1 a", "30ms EVALSHA x1 a", "35ms EVALSHA x1 b", "80ms EVALSHA x1 a", "170ms EVALSHA x1 a")
		if len(w.done) != 1 || w.done[0] != nil {
			t.Errorf("finished with %v, want once, without an error", w.done)
		}
	})
}

// Close waits for work until its context ends, and counts the rest.
func TestCloseCountsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{fail: func(string) error { return resp.Error("OOM no memory") }}
		u := start(s)
		w := &task{name: "a"}
		take(u, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if abandoned := u.Close(ctx); abandoned != (Abandoned{Releases: 1}) || time.Since(s.begin) != time.Second {
			t.Errorf("abandoned after %v: %+v, want a release after a second", time.Since(s.begin), abandoned)
		}
		if len(w.done) != 1 || w.done[0] != u.cfg.Ended {
			t.Errorf("finished with %v, want %v", w.done, u.cfg.Ended)
		}
		late := &task{name: "late"}
		take(u, late)
		if time.Since(s.begin) != time.Second+aloneLast || len(late.done) != 1 || late.done[0] != u.cfg.Ended {
			t.Errorf("work after Close finished with %v after %v, want %v after %v more", late.done, time.Since(s.begin), u.cfg.Ended, aloneLast)
		}
	})
}

// confirmed is Confirmed work whose next master becomes known.
type confirmed struct {
	*task
	asked int
	again func(ctx context.Context) (known bool)
}

func (c *confirmed) Again(ctx context.Context) (Work, time.Time) {
	c.asked++
	if !c.again(ctx) {
		return nil, time.Time{}
	}
	return c.task, time.Now().Add(time.Minute)
}

// Confirmed work without a next master waits for the next loss, up to a limit of memory.
func TestWaitingIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := start(&server{})
		var all []*confirmed
		for range 3 {
			for range keptMost {
				c := &confirmed{task: &task{name: "a"}, again: func(context.Context) bool { return false }}
				all = append(all, c)
				u.Keep(c)
			}
			u.Lost()
			time.Sleep(2 * time.Second)
		}
		u.Lost()
		time.Sleep(2 * time.Second)
		u.Close(t.Context())
		asked := 0
		for _, c := range all[2*keptMost:] {
			asked += c.asked
		}
		if len(u.waiting) != keptMost || asked != 2*keptMost {
			t.Errorf("%d wait, want %d; the newest were asked %d times, want twice each", len(u.waiting), keptMost, asked)
		}
	})
}

// If nobody says in time who the next master is, the question is repeated, and the rest comes first.
func TestMastersUnknownForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		u := start(s)
		slow := func(ctx context.Context) bool {
			<-ctx.Done()
			return false
		}
		first := &confirmed{task: &task{name: "slow"}, again: slow}
		second := &confirmed{task: &task{name: "known"}, again: func(ctx context.Context) bool { return ctx.Err() == nil }}
		u.Keep(first)
		u.Keep(second)
		u.Lost()
		time.Sleep(time.Minute)
		u.Close(t.Context())
		if len(second.done) == 0 {
			t.Error("a known master did not get its work")
		}
		if first.asked < 2 || first.asked > 31 {
			t.Errorf("asked %d times, want again and again for half a minute", first.asked)
		}
	})
}

// Latches are deleted together. One is kept for each lock, until no release has used it for a sweep.
func TestLatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		u := start(s)
		u.DeleteLatch("a", "latch:1")
		u.DeleteLatch("b", "latch:2")
		u.KeepLatch("c", "latch:3")
		u.KeepLatch("c", "latch:4")
		if key := u.SpareLatch("c"); key != "latch:3" {
			t.Errorf("the spare latch is %q, want latch:3", key)
		}
		if key := u.SpareLatch("c"); key != "" {
			t.Errorf("a spare latch has two users: %q", key)
		}
		u.KeepLatch("c", "latch:3")
		time.Sleep(latchPause + 2*sweepPause - 1)
		s.check(t, "10ms DEL x1 latch:4")
		time.Sleep(time.Second)
		s.check(t, "10ms DEL x1 latch:4", "210ms DEL x1 latch:3")
		if !u.Idle() {
			t.Error("not idle without latches")
		}
		u.Close(t.Context())
	})
}
