package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func TestTrace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var j journal
		var commands []string
		c := w.clientOn(conn.Config{Trace: &conn.Trace{CommandEnd: func(ctx context.Context, e conn.CommandEnd) {
			if e.Script != "" && ctx.Value(traceKey{}) != nil {
				commands = append(commands, fmt.Sprintf("%v: %s", ctx.Value(traceKey{}), e.Script))
			}
		}}}, lock.Config{Trace: j.trace()})
		lease := mustLock(t, c, "job")
		ends, _, _ := j.told()
		if e := ends[0]; e.Held != lease || e.Client != c || e.Lease != 30*time.Second || !e.Renewed || e.Try || e.Part {
			t.Errorf("%+v", e)
		}
		_, err := c.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrNotAcquired)
		j.want(t, "start reentrant job", "acquire job acquired in 0s, 0s in line, asked 1, handed over false",
			"start reentrant job", "acquire job refused in 0s, 0s in line, asked 1, handed over false")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock", err, lock.ErrNotAcquired)
		j.want(t, "start reentrant job", "acquire job cancelled in 1s, 0s in line, asked 1, handed over false")
		mustUnlock(t, lease)
		mustUnlock(t, lease)
		_, err = c.Reentrant("job").Lock(t.Context(), lock.For(1))
		wantErr(t, "Lock", err, lock.ErrInvalid)
		j.want(t, "release job released after 1s, handed over false")
		want := []string{"acquire job: reentrant_acquire", "acquire job: reentrant_acquire", "acquire job: reentrant_acquire", "release job: reentrant_single"}
		if !slices.Equal(commands, want) {
			t.Errorf("commands %v, want %v", commands, want)
		}
		w.free()
	})
}

// Callers of one process hand the lock over; the trace tells how long each stood in line.
func TestTraceOfHandOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var j journal
		c := w.client(lock.Config{Trace: j.trace(), HandOverFor: time.Second})
		first := mustLock(t, c, "job")
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				lease := mustLock(t, c, "job")
				w.sleep(10 * time.Millisecond)
				mustUnlock(t, lease)
			})
			w.sleep(10 * time.Millisecond)
		}
		j.take()
		mustUnlock(t, first)
		wg.Wait()
		j.wantSorted(t, "release job released after 20ms, handed over true",
			"acquire job acquired in 20ms, 0s in line, asked 1, handed over true",
			"release job released after 10ms, handed over true",
			"acquire job acquired in 20ms, 10ms in line, asked 0, handed over true",
			"release job released after 10ms, handed over false")
		w.free()
	})
}

func TestTraceOfLosses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var j journal
		c := w.client(lock.Config{Trace: j.trace(), Lease: 3 * time.Second})
		lease, other := mustLock(t, c, "job"), mustLock(t, c, "other")
		w.sleep(1500 * time.Millisecond)
		j.take()
		w.srv.Do("DEL", "job")
		w.sleep(time.Second)
		j.want(t, "lost reentrant job after 2s: "+lock.Forced.String())
		_, losses, got := j.told()
		if len(got) != 2 || got[0].Renewed != 2 || got[1].Renewed != 1 || got[1].Gone != 1 || got[1].Lease != 3*time.Second {
			t.Errorf("rounds %+v", got)
		}
		if losses[0].Held != lease || losses[0].Reason != lock.Forced {
			t.Errorf("%+v", losses[0])
		}
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		w.srv.Do("DEL", "other")
		wantErr(t, "Unlock", other.Unlock(t.Context()), lock.ErrNotHeld)
		mustLock(t, c, "third")
		j.take()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		j.want(t, "lost reentrant third after 0s: "+lock.ClientClosed.String())
	})
}

// Each outcome that is no success is told apart, with the errors and the delays of renewals.
func TestTraceOfFailures(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var j journal
		c := w.client(lock.Config{Trace: j.trace(), Lease: 18 * time.Second, RenewEvery: 2 * time.Second})
		end := func() lock.AcquireEnd { ends, _, _ := j.told(); return ends[len(ends)-1] }
		w.denied(func() {
			if _, err := c.Reentrant("job").TryLock(t.Context()); err == nil || end().Outcome != lock.OutcomeFailed || end().Err != err || end().Held != nil {
				t.Errorf("without a right: %v, %+v", err, end())
			}
		}, "evalsha")
		w.srv.Latency(time.Second)
		if _, err := c.Reentrant("job").TryLock(t.Context(), lock.For(time.Second)); !errors.Is(err, lock.ErrLost) || end().Outcome != lock.OutcomeLateGrant || end().Elapsed != 2*time.Second {
			t.Errorf("a late grant: %v, %+v", err, end())
		}
		w.srv.Latency(0)
		lease := mustLock(t, c, "job")
		w.srv.Latency(1100 * time.Millisecond)
		w.sleep(20 * time.Second)
		_, _, rounds := j.told()
		if late := slices.MaxFunc(rounds, func(a, b lock.RenewalInfo) int { return int(a.Lateness - b.Lateness) }); late.Lateness < 200*time.Millisecond || late.Elapsed != 2200*time.Millisecond {
			t.Errorf("no round was late or took long: %+v", rounds)
		}
		if slices.ContainsFunc(rounds, func(r lock.RenewalInfo) bool { return r.Failed+r.Gone > 0 }) {
			t.Errorf("renewals that wait for their confirmation count as failed or gone: %+v", rounds)
		}
		w.srv.Latency(0)
		w.sleep(5 * time.Second)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.sleep(20 * time.Second)
		w.srv.Refuse(false)
		_, losses, rounds := j.told()
		if last := rounds[len(rounds)-1]; last.Failed != 1 || last.Renewed != 0 || last.Gone != 0 {
			t.Errorf("a round without a server: %+v", last)
		}
		if l := losses[0]; l.Reason != lock.Unreachable || l.Err == nil || l.Age < 40*time.Second || l.Age > 44*time.Second || l.Held != lease {
			t.Errorf("%+v", l)
		}
		j.take()
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		if events := j.take(); len(events) != 1 || !strings.HasPrefix(events[0], "release job not_held after ") {
			t.Errorf("events %q", events)
		}
	})
	var ends []lock.AcquireEnd
	note := func(_ context.Context, e lock.AcquireEnd) { ends = append(ends, e) }
	inShard(t, lock.Config{Trace: &lock.Trace{AcquireEnd: note}}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Bare = true })
		w.attached()
		if mustUnlock(t, mustLock(t, c, "job")); len(ends) != 1 || !ends[0].Unacknowledged {
			t.Errorf("%+v", ends)
		}
	})
}

// A release without an answer is left to the background, which tells when it is done.
func TestTraceOfBackground(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var j journal
		c := w.client(lock.Config{Trace: j.trace()})
		lease := mustLock(t, c, "job", lock.For(time.Second))
		j.take()
		w.onScript("release", func(n int) fakeredis.Action {
			if n < 3 {
				return fakeredis.Drop()
			}
			return fakeredis.Run()
		})
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(20 * time.Second)
		events := j.take()
		if len(events) != 3 || events[0] != "background release job, done false in 0s: <nil>" ||
			!strings.HasPrefix(events[1], "release job unconfirmed after 0s") ||
			!strings.HasPrefix(events[2], "background release job, done true in ") {
			t.Errorf("events %q", events)
		}
		w.srv.Intercept(nil)
	})
}

// Every synchronizer takes part.
func TestTraceOfAllKinds(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		var j journal
		p := f.process(lock.Config{Trace: j.trace()})
		c, ctx := p[0], t.Context()
		const asked = " acquired in 0s, 0s in line, asked 1, handed over false"
		released := func(kind, name string) []string {
			return []string{"start " + kind + " " + name, "acquire " + name + asked, "release " + name + " released after 0s, handed over false"}
		}
		for kind, h := range map[string]interface {
			Lock(context.Context, ...lock.Option) (*lock.Lease, error)
		}{
			"fair": c.Fair("k"), "fenced": c.Fenced("k"), "nonreentrant": c.NonReentrant("k"), "spin": c.Spin("k", lock.Backoff{}),
			"read": c.ReadWrite("k").Read(), "write": c.ReadWrite("k").Write(), "plain": c.Plain("k"),
		} {
			lease, err := h.Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, lease)
			j.want(t, released(kind, "k")...)
		}
		semaphore, permits, latch := c.Semaphore("s"), c.PermitSemaphore("p"), c.CountDownLatch("l")
		semaphore.TrySetPermits(ctx, 2)
		permits.TrySetPermits(ctx, 2)
		latch.TrySetCount(ctx, 1)
		semaphore.Acquire(ctx, 2)
		wantErr(t, "TryAcquire", semaphore.TryAcquire(ctx, 1), lock.ErrNotAcquired)
		semaphore.Release(ctx, 2)
		j.want(t, "start semaphore s", "acquire s"+asked, "start semaphore s",
			strings.Replace("acquire s"+asked, "acquired", "refused", 1), "release s released after 0s, handed over false")
		lease, err := permits.TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lease)
		j.want(t, released("permits", "p")...)
		latch.CountDown(ctx)
		latch.Wait(ctx)
		j.want(t, "release l released after 0s, handed over false", "start latch l", "acquire l"+asked)
		write, err := c.ReadWrite("k").Write().Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		read, err := write.Downgrade(ctx)
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, read)
		j.want(t, "start write k", "acquire k"+asked, "start read k", "release k released after 0s, handed over false", "acquire k"+asked,
			"release k released after 0s, handed over false")
		mustUnlock(t, lockMulti(t, newMulti(t, reentrants(c, "a", "b")...)))
		ends, _, _ := j.told()
		if last := ends[len(ends)-2:]; last[1].Members != 2 || last[1].Part || !last[0].Part {
			t.Errorf("%+v", last)
		}
		if events := j.take(); len(events) != 9 || events[0] != "start multi a" || events[5] != strings.Replace("acquire a"+asked, "asked 1", "asked 0", 1) {
			t.Errorf("events of a Multi: %q", events)
		}
		mustUnlock(t, lockRed(t, p.redlock(t, lock.RedlockConfig{}, false)))
		j.want(t, released("redlock", "job")...)
	})
}

// The outcome is that of the error: a refusal stays a refusal if the context ends just behind the answer.
func TestTraceOfARefusalAtTheEndOfTheContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		held := mustLock(t, w.client(lock.Config{}), "job")
		ctx, cancel := context.WithCancel(t.Context())
		var outcome lock.Outcome
		c := w.clientOn(conn.Config{Trace: &conn.Trace{CommandEnd: func(context.Context, conn.CommandEnd) { cancel() }}},
			lock.Config{Trace: &lock.Trace{AcquireEnd: func(_ context.Context, end lock.AcquireEnd) { outcome = end.Outcome }}})
		_, err := c.Reentrant("job").TryLock(ctx)
		wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
		if errors.Is(err, context.Canceled) || ctx.Err() == nil || outcome != lock.OutcomeRefused {
			t.Errorf("the outcome of %v is %q", err, outcome)
		}
		mustUnlock(t, held)
	})
}

// The commands of each kind are sent under the context of the caller, also if the context never ends.
func TestCommandsHaveTheContextOfTheCaller(t *testing.T) {
	type key struct{}
	inFleet(t, 3, func(t *testing.T, f fleet) {
		var mu sync.Mutex
		var alone []string // scripts without the caller's context
		trace := &conn.Trace{CommandStart: func(ctx context.Context, s conn.CommandStart) context.Context {
			if mu.Lock(); s.Script != "" && ctx.Value(key{}) == nil {
				alone = append(alone, s.Script)
			}
			mu.Unlock()
			return ctx
		}}
		var p process
		for _, w := range f {
			p = append(p, w.clientOn(conn.Config{Trace: trace}, lock.Config{}))
		}
		c := p[0]
		for _, ctx := range []context.Context{
			context.WithValue(context.Background(), key{}, true), context.WithValue(t.Context(), key{}, true),
		} {
			for _, take := range []func(context.Context, ...lock.Option) (*lock.Lease, error){
				c.Reentrant("k").Lock, c.Reentrant("k").TryLock, c.Fair("k").Lock, c.Fenced("k").Lock, c.Spin("k", lock.Backoff{}).Lock,
				c.Plain("k").Lock, c.FasterMulti("k", "1").Lock, c.ReadWrite("k").Read().Lock, newMulti(t, reentrants(c, "a", "b")...).Lock,
				p.redlock(t, lock.RedlockConfig{}, false).Lock, p.redlock(t, lock.RedlockConfig{}, false).TryLock,
			} {
				lease, err := take(ctx, lock.For(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(lease.Check(ctx), lease.Extend(ctx, 20*time.Second), lease.Unlock(ctx)); err != nil {
					t.Fatal(err)
				}
			}
			write, err := c.ReadWrite("k").Write().Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			read, err := write.Downgrade(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := read.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(alone) != 0 {
			t.Errorf("without the context of the caller: %q", alone)
		}
	})
}

func TestJoinTraces(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var a, b journal
		c := w.client(lock.Config{Trace: lock.JoinTraces(a.trace(), nil, b.trace(), &lock.Trace{})})
		mustUnlock(t, mustLock(t, c, "job"))
		want := []string{"start reentrant job", "acquire job acquired in 0s, 0s in line, asked 1, handed over false",
			"release job released after 0s, handed over false"}
		a.want(t, want...)
		b.want(t, want...)
	})
	if lock.JoinTraces(nil) != nil {
		t.Error("JoinTraces of nothing is a Trace")
	}
}

func TestReasonLabel(t *testing.T) {
	seen := map[string]bool{}
	for r := lock.Expired; r <= lock.Ending; r++ {
		if label := r.Label(); label == "" || label == "unknown" || seen[label] {
			t.Errorf("Label of %v is %q", r, label)
		} else {
			seen[label] = true
		}
	}
	if got := lock.Reason(0).Label(); got != "unknown" {
		t.Errorf("Label of no reason is %q", got)
	}
}

// names are the names of the connections to the server.
func (w *world) names() (list []string) {
	synctest.Wait()
	for _, c := range w.srv.Conns() {
		list = append(list, c.Name)
	}
	return list
}

// Every connection of a client has its name: one that was open before, one that is dialed later, and that for wake-ups.
func TestConnectionsAreNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{ClientName: "orders"}, lock.Config{Name: "web-7"})
		lease := mustLock(t, c, "job", lock.For(time.Hour))
		waiting, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { _, err := c.Reentrant("job").Lock(waiting); waited <- err }()
		want := "orders,web-7:" + c.ID()
		for _, cut := range []bool{false, true} {
			if cut {
				w.srv.KillConns(nil)
				w.sleep(5 * time.Second)
			}
			names := w.names()
			if len(names) != 2 {
				t.Errorf("%d connections, want 2", len(names))
			}
			for _, name := range names {
				if name != want {
					t.Errorf("a connection is named %q, want %q", name, want)
				}
			}
		}
		cancel()
		<-waited
		mustUnlock(t, lease)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		for _, name := range w.names() {
			if name != "orders" {
				t.Errorf("a connection is named %q after Close", name)
			}
		}
	})
}

// Two clients of one pool share its connections, and a pool without names gets none.
func TestNamesOfAPool(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		var want []string
		for _, name := range []string{"a", "b"} {
			c, err := lock.New(pool, lock.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			want = append(want, name+":"+c.ID())
		}
		if got := w.names(); len(got) != 1 || got[0] != strings.Join(want, ",") {
			t.Errorf("the connections are named %q, want %q", got, want)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		w.clientOn(conn.Config{NoIdentity: true}, lock.Config{})
		if got := w.names(); len(got) != 1 || got[0] != "" {
			t.Errorf("the connections are named %q, want no name", got)
		}
		for _, name := range []string{"a b", "a,b", "é"} {
			if _, err := lock.New(pool, lock.Config{Name: name}); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New with the Name %q = %v", name, err)
			}
		}
	})
}

// A server that refuses the name serves all the same.
func TestNameRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) > 1 && cmd.Args[1] == "SETNAME" {
				return fakeredis.Reply("-NOPERM no\r\n")
			}
			return fakeredis.Run()
		})
		c := w.client(lock.Config{})
		mustUnlock(t, mustLock(t, c, "job"))
		w.srv.KillConns(nil)
		mustUnlock(t, mustLock(t, c, "job"))
	})
}

func TestDefaultName(t *testing.T) {
	host, _ := os.Hostname()
	for pod, want := range map[string]string{"": fmt.Sprintf("%s-%d", host, os.Getpid()), "web 7,é": "web-7--"} {
		t.Setenv("POD_NAME", pod)
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			if got := w.names(); len(got) != 1 || got[0] != want+":"+c.ID() {
				t.Errorf("with POD_NAME=%s the connections are named %q, want %q", pod, got, want)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		first := mustLock(t, c, "first")
		w.sleep(41 * time.Second)
		second, err := c.Fenced("second").Lock(t.Context(), lock.For(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, c, "third", lock.For(time.Second))
		w.sleep(time.Second)
		held := c.Held()
		if len(held) != 2 {
			t.Fatalf("Held() = %+v, want two leases", held)
		}
		for i, l := range []*lock.Lease{first, second} {
			h := held[i]
			if h.Name != l.Name() || h.Kind != l.Kind() || h.Owner != l.Owner() || h.Token != l.Token() || !h.ValidUntil.Equal(l.ValidUntil()) {
				t.Errorf("Held()[%d] = %+v, want %v", i, h, l)
			}
		}
		if held[0].Age != 42*time.Second || held[1].Age != time.Second || !held[0].Renewed || held[1].Renewed {
			t.Errorf("Held() = %+v", held)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
		if held := c.Held(); len(held) != 0 {
			t.Errorf("Held() = %+v after Unlock", held)
		}
	})
}

// Held, String and Unlock at once: for the race detector.
func TestHeldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					l := mustLock(t, c, "job", lock.For(time.Minute))
					go func() { _ = l.Extend(t.Context(), time.Hour) }()
					mustUnlock(t, l)
				}
			})
			wg.Go(func() {
				for range 100 {
					for _, h := range c.Held() {
						_ = h.Owner
					}
				}
			})
		}
		wg.Wait()
	})
}

// A loss found by Unlock is told to the Trace: of a single lock, and of a lease with Members.
func TestTraceLossFoundByUnlock(t *testing.T) {
	for _, what := range []string{"single", "multi", "redlock"} {
		t.Run(what, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				var mu sync.Mutex
				lost, ends := map[string]int{}, map[string]lock.ReleaseEnd{}
				cfg := lock.Config{Trace: &lock.Trace{
					Lost:       func(i lock.LossInfo) { mu.Lock(); lost[i.Kind]++; mu.Unlock() },
					ReleaseEnd: func(_ context.Context, e lock.ReleaseEnd) { mu.Lock(); ends[e.Kind] = e; mu.Unlock() },
				}}
				var p process
				for _, w := range f {
					p = append(p, w.clientOn(conn.Config{Timeout: time.Second}, cfg))
				}
				var lease *lock.Lease
				switch what {
				case "single":
					lease = mustLock(t, p[0], "job")
				case "multi":
					lease = lockMulti(t, newMulti(t, p[0].Reentrant("job"), p[1].Reentrant("job")))
				case "redlock":
					lease = lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
				}
				time.Sleep(time.Millisecond)
				kind := lease.Kind()
				f[0].srv.Do("DEL", "job")
				f[1].srv.Do("DEL", "job")
				err := lease.Unlock(t.Context())
				if !errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("%s: Unlock() = %v", what, err)
				}
				mu.Lock()
				if lost[kind] != 1 || !ends[kind].Lost || ends[kind].Outcome != lock.OutcomeNotHeld {
					t.Errorf("%s: Lost called %d times, ReleaseEnd %v, Lost %v", what, lost[kind], ends[kind].Outcome, ends[kind].Lost)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				if !t.Failed() {
					f.free()
				}
			})
		})
	}
}
