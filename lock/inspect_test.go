package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
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
		want := `msg="lock: renewals fail, and are tried again" lock=o* kind=reentrant owner=` + lease.Owner() + ` age=15s leases=1 error=`
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

// The lock's name alone leads to its holders and to the process behind them, of any kind.
func TestInspect(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		shapes := map[string]lock.Shape{
			"reentrant": lock.ShapeLock, "nonreentrant": lock.ShapeLock, "spin": lock.ShapeLock, "fenced": lock.ShapeFenced,
			"fair": lock.ShapeLock, "nonreentrantfair": lock.ShapeLock, "read": lock.ShapeReadWrite, "write": lock.ShapeReadWrite,
			"plain": lock.ShapePlain, "permits": lock.ShapePermits, "fastermulti": lock.ShapeFasterMulti,
		}
		for kind, take := range leasedKinds(t, mine) {
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.sleep(5 * time.Second)
			seen, err := c.Inspect(t.Context(), name)
			if err != nil || seen.Name != name || seen.Shape != shapes[kind] || len(seen.Info.Holders) != 1 || seen.Info.Holders[0].Owner != lease.Owner() {
				t.Errorf("%s: Inspect() = %+v, %v", kind, seen, err)
			}
			if h := seen.Info.Holders[0]; h.Holds != 1 || h.Remaining <= 20*time.Second || h.Remaining > 30*time.Second {
				t.Errorf("%s: holder %+v", kind, h)
			}
			switch {
			case kind == "plain" || kind == "permits":
				if len(seen.Clients) != 0 {
					t.Errorf("%s: clients %+v", kind, seen.Clients)
				}
			case len(seen.Clients) != 1 || !seen.Clients[0].Connected || seen.Clients[0].Name != "web-7" || seen.Clients[0].ID != mine.ID() || seen.Clients[0].Addr == "":
				t.Errorf("%s: clients %+v, %v", kind, seen.Clients, seen.ClientsErr)
			}
			if seen.Info.Token != lease.Token() {
				t.Errorf("%s: token %d, want %d", kind, seen.Info.Token, lease.Token())
			}
			mustUnlock(t, lease)
			w.srv.Do("DEL", "redisson_lock_token:{job}")
		}
		if seen, err := c.Inspect(t.Context(), "job"); err != nil || seen.Shape != "" || seen.Info.Locked {
			t.Errorf("Inspect() of a free lock = %+v, %v", seen, err)
		}
		w.srv.Do("SET", "number", "3")
		if seen, err := c.Inspect(t.Context(), "number"); err != nil || seen.Shape != lock.ShapeNumber || seen.Info.Permits.Free != 3 {
			t.Errorf("Inspect() of a number = %+v, %v", seen, err)
		}
		w.srv.Do("RPUSH", "list", "3")
		if seen, err := c.Inspect(t.Context(), "list"); err != nil || seen.Shape != lock.ShapeOther {
			t.Errorf("Inspect() of a list = %+v, %v", seen, err)
		}
		_, err := c.Inspect(t.Context(), "a{b")
		wantErr(t, "Inspect of a bad name", err, lock.ErrInvalid)
	})
}

func TestInspectWaiters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, a, b := w.client(lock.Config{Name: "holder"}), w.client(lock.Config{Name: "a"}), w.client(lock.Config{Name: "b"})
		lease, next := mustLock(t, holder, "job"), make(chan *lock.Lease)
		for _, c := range []*lock.Client{a, a, b} {
			go func() { next <- mustLock(t, c, "job") }()
		}
		synctest.Wait()
		seen, err := holder.Inspect(t.Context(), "job")
		if err != nil || seen.Listening != 2 {
			t.Errorf("Inspect() = %+v, %v, want two clients listening", seen, err)
		}
		mustUnlock(t, lease)
		for range 3 {
			mustUnlock(t, <-next)
		}
		// Another client's holder that is not connected, as Redisson's are not by name.
		w.srv.Do("HSET", "java", "c0ffee00-0000-4000-8000-000000000000:41", "1")
		w.srv.Do("PEXPIRE", "java", "30000")
		seen, err = holder.Inspect(t.Context(), "java")
		if err != nil || len(seen.Clients) != 1 || seen.Clients[0].Connected || seen.Clients[0].ID != "c0ffee00-0000-4000-8000-000000000000" {
			t.Errorf("Inspect() = %+v, %v", seen, err)
		}
		lease = mustLockFair(t, holder)
		queued := w.waiter(a)
		synctest.Wait()
		seen, err = b.Inspect(t.Context(), "job")
		if err != nil || seen.Shape != lock.ShapeFair || len(seen.Clients) != 2 || seen.Clients[0].Name != "holder" || seen.Clients[1].Name != "a" {
			t.Errorf("Inspect() = %+v, %v", seen, err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-queued)
	})
}

// A key that becomes another kind between the questions is looked at again, a few times; any other refusal is the error.
func TestInspectAKeyThatChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		for times, want := range map[int]error{1: nil, 2: nil, 100: lock.ErrWrongType} {
			w.onScriptOf("reentrant", "info", func(n int) fakeredis.Action {
				if n <= times {
					return fakeredis.Reply("-WRONGTYPE x\r\n")
				}
				return fakeredis.Run()
			})
			seen, err := c.Inspect(t.Context(), "job")
			if !errors.Is(err, want) || want == nil && (seen.Shape != lock.ShapeLock || len(seen.Info.Holders) != 1) {
				t.Errorf("Inspect() of a key that changes %d times = %+v, %v, want %v", times, seen, err, want)
			}
		}
		w.onScriptOf("reentrant", "info", func(int) fakeredis.Action { return fakeredis.Reply("-NOPERM x\r\n") })
		_, err := c.Inspect(t.Context(), "job")
		if !errors.Is(err, resp.ErrNoPerm) || errors.Is(err, lock.ErrWrongType) {
			t.Errorf("Inspect() without a right = %v, want NOPERM", err)
		}
		w.srv.Intercept(nil)
		mustUnlock(t, lease)
		w.free()
	})
}

// Of each kind: only the named owner loses the lock, its process is told, and others stay.
func TestForceUnlockOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		for kind, take := range leasedKinds(t, mine) {
			if kind == "fastermulti" {
				continue // see TestForceUnlockOwnerOfAGroup
			}
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []string{c.NewOwner().String(), "", "0123456789abcdef0123456789abcdef"} {
				if forced, err := c.ForceUnlockOwner(t.Context(), name, other); forced || err != nil {
					t.Errorf("%s: ForceUnlockOwner(%q) = %v, %v", kind, other, forced, err)
				}
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v", kind, err)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lostBecause(t, lease.Check(t.Context()), lock.Forced)
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); forced || err != nil {
				t.Errorf("%s: a second ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lease, err = take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if forced, err := mine.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			lostBecause(t, lease.Err(), lock.Forced)
		}
		w.srv.Do("RPUSH", "list", "3")
		_, err := c.ForceUnlockOwner(t.Context(), "list", "x")
		wantErr(t, "ForceUnlockOwner of a list", err, lock.ErrWrongType)
		w.sleep(time.Minute)
		w.srv.Do("DEL", "list", "permits", "redisson_lock_token:{job}")
		w.free()
	})
}

// Waiters get the lock at once; other readers and permits stay.
func TestForceUnlockOwnerAmongOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLockFair(t, mine)
		queued := w.waiter(c)
		synctest.Wait()
		start := time.Now()
		if forced, err := c.ForceUnlockOwner(t.Context(), "job", lease.Owner()); !forced || err != nil {
			t.Fatal(forced, err)
		}
		mustUnlock(t, <-queued)
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("the waiter got the lock after %v", waited)
		}
		owner := mine.NewOwner()
		rw := mine.ReadWrite("rw")
		var reads []*lock.Lease
		for _, opts := range [][]lock.Option{{lock.As(owner)}, {lock.As(owner)}, nil} {
			l, err := rw.Read().Lock(t.Context(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			reads = append(reads, l)
		}
		if forced, err := c.ForceUnlockOwner(t.Context(), "rw", owner.String()); !forced || err != nil {
			t.Fatal(forced, err)
		}
		wantErr(t, "Check of the first hold", reads[0].Check(t.Context()), lock.ErrLost)
		wantErr(t, "Check of the second hold", reads[1].Check(t.Context()), lock.ErrLost)
		if err := reads[2].Check(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, reads[2])
		w.sleep(time.Minute)
		w.free()
	})
}

// A waiter that asks for the holder, and hears that there is none, tries at once: nobody tells of a key deleted by hand.
func TestLockFoundFree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease := mustLock(t, w.client(lock.Config{}), "job", lock.For(9*time.Second))
		c := w.client(lock.Config{WarnAfter: 3 * time.Second, Logger: slog.New(new(logBook))})
		time.AfterFunc(time.Second, func() { w.srv.Do("DEL", "job") })
		begin := time.Now()
		mustUnlock(t, mustLock(t, c, "job"))
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("Lock() took %v, want 3s", took)
		}
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
	})
}
