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

func (w *task) Answered(resp.Value, bool) (bool, error) { return true, nil }

func zero[T any](*T) *T { return new(T) }

// start returns a Cleanup of a server.
func start(s *server) *Cleanup {
	s.begin = time.Now()
	r := &remote.Server{Doer: s}
	r.Log = zero(r.Log) // silent
	clocks := remote.NewClocks(r)
	return New(Config{
		Server: r, Clocks: clocks, Runner: remote.NewRunner(r, clocks, nil, nil),
		Sweep:     func(bool) bool { return false },
		Added:     func(Work) func(error) { return func(error) {} },
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

// confirmed is Confirmed work whose master is asked for.
type confirmed struct {
	*task
	asked int
	again func(ctx context.Context) (next, known bool)
}

func (c *confirmed) Again(ctx context.Context) (Work, time.Time, bool) {
	if ctx.Err() != nil {
		return nil, time.Time{}, false
	}
	c.asked++
	next, known := c.again(ctx)
	if !next {
		return nil, time.Time{}, known
	}
	return c.task, time.Now().Add(time.Minute), known
}

func same(context.Context) (next, known bool)  { return false, true }
func other(context.Context) (next, known bool) { return true, true }

// The newest changes wait for a next master, up to a limit of memory, for ChangeFor. Releases and undos do not, and take no place of a change.
func TestWaitingIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := start(&server{})
		var changes, ended []*confirmed
		for range 2 * keptMost {
			changes = append(changes, &confirmed{task: &task{name: "a"}, again: same})
			ended = append(ended, &confirmed{task: &task{name: "b"}, again: same})
		}
		for i := range changes {
			u.KeepChange(changes[i])
			u.Keep(ended[i])
		}
		asked := func(list []*confirmed) (old, latest int) {
			for i, c := range list {
				if i < keptMost {
					old += c.asked
				} else {
					latest += c.asked
				}
			}
			return old, latest
		}
		for range 3 { // losses in a second, in 20 and in 40
			u.Lost()
			time.Sleep(ChangeFor * 2 / 3)
		}
		synctest.Wait()
		if old, latest := asked(changes); old != 0 || latest != 2*keptMost {
			t.Errorf("%d and %d questions about changes, want 0 and %d", old, latest, 2*keptMost)
		}
		if old, latest := asked(ended); old != 0 || latest != keptMost {
			t.Errorf("%d and %d questions about releases, want 0 and %d", old, latest, keptMost)
		}
		u.Close(t.Context())
	})
}

// While nobody says which server is the master, the question is repeated, a few times a second, and the rest comes first.
func TestMastersUnknownForAWhile(t *testing.T) {
	for name, silent := range map[string]func(ctx context.Context) (next, known bool){
		"no answer": func(ctx context.Context) (next, known bool) {
			<-ctx.Done()
			return false, false
		},
		"an error": func(context.Context) (next, known bool) { return false, false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				u := start(s)
				var silents []*confirmed
				for range 10 {
					c := &confirmed{task: &task{name: "silent"}, again: silent}
					silents = append(silents, c)
					u.KeepChange(c)
				}
				last := &confirmed{task: &task{name: "known"}, again: other}
				u.KeepChange(last)
				u.Lost()
				time.Sleep(time.Minute)
				u.KeepChange(&confirmed{task: &task{name: "silent"}, again: silent})
				u.Lost()
				time.Sleep(resendAfter + time.Millisecond)
				began := time.Now()
				u.Close(t.Context())
				if took := time.Since(began); took > 0 {
					t.Errorf("Close took %v", took)
				}
				if len(last.done) == 0 {
					t.Error("a known master did not get its work")
				}
				asked := 0
				for _, c := range silents {
					asked += c.asked
				}
				if asked < 20 || asked > 31*unknownMost {
					t.Errorf("asked %d times, want a few times a second for half a minute", asked)
				}
			})
		})
	}
}

// While a master is unknown, only the question for it is repeated: releases and undos are sent once for a loss.
func TestReleasesAreNotRepeatedWithQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := start(&server{})
		release := &confirmed{task: &task{name: "a"}, again: other}
		silent := &confirmed{task: &task{name: "b"}, again: func(context.Context) (next, known bool) { return false, false }}
		u.Keep(release)
		u.KeepChange(silent)
		u.Lost()
		time.Sleep(keptFor - time.Second)
		synctest.Wait()
		if release.asked != 1 || silent.asked < 3 {
			t.Errorf("the release was sent again %d times, and the master asked for %d times", release.asked, silent.asked)
		}
		u.Lost()
		time.Sleep(resendAfter + resendPause)
		synctest.Wait()
		if release.asked != 2 {
			t.Errorf("the release was sent again %d times after two losses", release.asked)
		}
		u.Close(t.Context())
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
