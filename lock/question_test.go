package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// tryFor waits for a lock up to d, and returns why it was not acquired.
func tryFor(t *testing.T, take func(context.Context, ...lock.Option) (*lock.Lease, error), d time.Duration) *lock.NotAcquiredError {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	_, err := take(ctx)
	failed, ok := errors.AsType[*lock.NotAcquiredError](err)
	if !ok {
		t.Fatalf("Lock() = %v", err)
	}
	if waited := time.Since(start); waited != d {
		t.Errorf("Lock() returned after %v, want %v", waited, d)
	}
	return failed
}

// A lock that its holder has left to the server by AtLeast has an owner, and no process that works under it.
func TestErrorNamesNoProcessAtRest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		mustUnlock(t, mustLock(t, mine, "a", lock.AtLeast(20*time.Second)))
		failed := tryFor(t, c.Reentrant("a").Lock, 5*time.Second)
		if failed.Holder == "" || failed.Process != "" {
			t.Errorf("%+v, want a holder without a process", failed)
		}
	})
}

// Of each kind: a wait that ends with its deadline names the holder in another process, also for those behind in line.
func TestErrorNamesTheHolder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		others := leasedKinds(t, c)
		for kind, take := range leasedKinds(t, mine) {
			switch kind {
			case "permits", "read":
				continue // there are more permits, and readers share
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan *lock.NotAcquiredError)
			for range 2 {
				go func() { errs <- tryFor(t, others[kind], 5*time.Second) }()
			}
			for range 2 {
				failed, owner := <-errs, lease.Owner()
				if failed.Holder != owner || (failed.Process == "web-7") != (kind != "plain") {
					t.Errorf("%s: %+v, want the holder %s", kind, failed, owner)
				}
			}
			w.sleep(time.Second)
			mustUnlock(t, lease)
			w.srv.Do("DEL", "redisson_lock_token:{job}")
		}
		w.srv.Do("DEL", "permits")
	})
}

// However the server answers, the deadline holds, and names are not asked for where that is dear or forbidden.
func TestQuestionsAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine := w.client(lock.Config{Name: "web-7"})
		lease := mustLock(t, mine, "job")
		for what, answer := range map[string]struct {
			command string
			action  fakeredis.Action
			process string
			lists   int
		}{
			"many connections": {"INFO", fakeredis.Reply("+connected_clients:1001\r\n"), "", 0},
			"no right":         {"CLIENT", fakeredis.Reply("-NOPERM no\r\n"), "", 1},
			"no answer":        {"INFO", fakeredis.Swallow(), "", 0},
			"an answer":        {"NONE", fakeredis.Run(), "web-7", 1},
		} {
			c := w.client(lock.Config{})
			lists := 0
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "CLIENT" && cmd.Args[1] == "LIST" {
					lists++
				}
				if cmd.Name == answer.command && (cmd.Name != "CLIENT" || cmd.Args[1] == "LIST") {
					return answer.action
				}
				return fakeredis.Run()
			})
			for range 3 {
				failed := tryFor(t, c.Reentrant("job").Lock, time.Second)
				known := failed.Holder == lease.Owner() || what == "no answer" // for which later commands on the connection wait
				if !known || failed.Process != answer.process {
					t.Errorf("%s: %+v", what, failed)
				}
			}
			if lists != answer.lists {
				t.Errorf("%s: %d times CLIENT LIST, want %d", what, lists, answer.lists)
			}
			if failed := tryFor(t, c.Reentrant("job").Lock, 50*time.Millisecond); failed.Holder != "" {
				t.Errorf("%s: a short wait: %+v", what, failed)
			}
		}
		w.srv.Intercept(nil)
		w.sleep(time.Minute)
		mustUnlock(t, lease)
	})
}

// A long wait is reported with the holder while it lasts, and a log line names the lock.
func TestLongWaitNamesTheHolder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		mine := w.client(lock.Config{Name: "web-7"})
		c := w.client(lock.Config{WarnAfter: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		lease := mustLock(t, mine, "orders")
		next := make(chan *lock.Lease)
		go func() { next <- mustLock(t, c, "orders") }()
		w.sleep(29 * time.Second)
		if text := out.String(); text != "" {
			t.Errorf("log %s", text)
		}
		w.sleep(2 * time.Second)
		synctest.Wait()
		want := fmt.Sprintf(`msg="lock: waiting for long" lock=orders kind=reentrant owner=%s:1 waited=30s holder=%s process=web-7`, c.ID(), lease.Owner())
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("log %s, want %s", text, want)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-next)
	})
}

// Who stands by waits for as long as it takes, and then holds the lock for long: the log has nothing of either.
func TestStandbyIsNotReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		var starts []bool
		c := w.client(lock.Config{
			WarnAfter: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil)),
			Trace: &lock.Trace{AcquireStart: func(ctx context.Context, start lock.AcquireStart) context.Context {
				starts = append(starts, start.Standby)
				return ctx
			}},
		})
		first := mustLock(t, w.client(lock.Config{}), "leader")
		time.AfterFunc(time.Minute, func() { mustUnlock(t, first) })
		second, err := c.Reentrant("leader").Lock(t.Context(), lock.Standby())
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		mustUnlock(t, second)
		if text := out.String(); text != "" {
			t.Errorf("log %s", text)
		}
		mustUnlock(t, mustLock(t, c, "leader"))
		multi, err := lock.NewMulti(c.Reentrant("a"), c.Reentrant("b"))
		if err != nil {
			t.Fatal(err)
		}
		both, err := multi.Lock(t.Context(), lock.Standby())
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, both)
		if want := []bool{true, false, true, true, true}; !slices.Equal(starts, want) {
			t.Errorf("AcquireStart.Standby = %v, want %v", starts, want)
		}
	})
}

// An answer stays when a later question has none.
func TestAnswerIsKept(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		mine := w.client(lock.Config{Name: "web-7"})
		c := w.client(lock.Config{WarnAfter: 900 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		lease := mustLock(t, mine, "job")
		time.AfterFunc(850*time.Millisecond, func() { w.srv.Mute(true) })
		failed := tryFor(t, c.Reentrant("job").Lock, time.Second)
		w.srv.Mute(false)
		if failed.Holder != lease.Owner() || failed.Process != "web-7" {
			t.Errorf("%+v", failed)
		}
		if text := out.String(); !strings.Contains(text, "process=web-7") {
			t.Errorf("log %s", text)
		}
		w.sleep(time.Minute)
		mustUnlock(t, lease)
	})
}

// A line about renewals names a lock, as Config.ShowName shows it.
func TestLinesNameTheLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		c := w.client(lock.Config{Logger: slog.New(slog.NewTextHandler(&out, nil)), ShowName: func(name string) string { return name[:1] + "*" }})
		lease := mustLock(t, c, "orders")
		w.sleep(9 * time.Second)
		w.srv.Mute(true)
		w.sleep(9 * time.Second)
		w.srv.Mute(false)
		want := `msg="lock: renewal" lock=o* leases=1 error=`
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("log %s, want %s", text, want)
		}
		w.sleep(20 * time.Second)
		mustUnlock(t, lease)
	})
}

// A loss without an error has no error in its line.
func TestLineOfALoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		c := w.client(lock.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		lease := mustLock(t, c, "orders")
		if freed, err := c.ForceUnlockOwner(t.Context(), "orders", lease.Owner()); !freed || err != nil {
			t.Fatal(freed, err)
		}
		<-lease.Lost()
		w.sleep(time.Second)
		want := "owner=" + lease.Owner() + ` age=0s reason="removed before its lease ended"` + "\n"
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("log %s, want %s", text, want)
		}
	})
}

// The holder of permits is a permit; of a Multi the holder of the member that is taken, also if the last attempts were too
// short to ask; of a Redlock the process with the most of the servers, or an owner in this process.
func TestErrorNamesTheHolderOfMany(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		permits := mine.PermitSemaphore("permits")
		if _, err := permits.TrySetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		permit, err := permits.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, other := range map[string]*lock.Client{"another process": c, "the same process": mine} {
			if failed := tryFor(t, other.PermitSemaphore("permits").Acquire, time.Second); failed.Holder != permit.Owner() || failed.Process != "" {
				t.Errorf("permits in %s: %+v, want the holder %s", what, failed, permit.Owner())
			}
		}
		mustUnlock(t, permit)
		lease := mustLock(t, mine, "b")
		multi := newMulti(t, reentrants(c, "a", "b", "c")...)
		for _, d := range []time.Duration{time.Second, 1540 * time.Millisecond, 5 * time.Second, 6550 * time.Millisecond} {
			failed := tryFor(t, multi.Lock, d)
			if failed.Name != "b" || failed.Holder != lease.Owner() || failed.Process != "web-7" || failed.HolderSeen < time.Millisecond || failed.HolderSeen > 3*time.Second {
				t.Errorf("a Multi after %v: %+v, want the holder %s", d, failed, lease.Owner())
			}
			w.sleep(time.Second)
		}
		mustUnlock(t, lease)
	})
	for _, plain := range []bool{false, true} {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			held := f.process(lock.Config{Name: "web-7"})
			mine := held.redlock(t, lock.RedlockConfig{}, plain)
			other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain)
			lease := lockRed(t, mine)
			owns := func(owner string) bool {
				return slices.ContainsFunc(lease.Members(), func(l *lock.Lease) bool { return l.Owner() == owner })
			}
			failed := tryFor(t, other.Lock, 2*time.Second)
			if !owns(failed.Holder) || (failed.Process == "web-7") == plain || failed.HolderSeen != questionTime {
				t.Errorf("another process: %+v, want an owner of %v", failed, lease.Members())
			}
			if failed := tryFor(t, other.Lock, 50*time.Millisecond); failed.Holder != "" {
				t.Errorf("a short wait: %+v", failed)
			}
			failed = tryFor(t, mine.Lock, 2*time.Second)
			if !owns(failed.Holder) || failed.HeldFor < 3*time.Second || failed.HolderSeen != 0 {
				t.Errorf("this process: %+v, want an owner of %v", failed, lease.Members())
			}
			_, err := mine.TryLock(t.Context())
			if failed, _ := errors.AsType[*lock.NotAcquiredError](err); failed == nil || !owns(failed.Holder) {
				t.Errorf("TryLock() in this process = %v", err)
			}
			mustUnlock(t, lease)
			f.free()
		})
	}
}

// questionTime is the time between the question for a holder and the deadline.
const questionTime = 200 * time.Millisecond

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
