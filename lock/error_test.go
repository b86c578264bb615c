package lock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// Of each kind: the error names the lock, its kind and, in this process, its holder.
func TestNotAcquiredSaysWhat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{Name: "web-7"}), w.client(lock.Config{})
		lease := mustLock(t, mine, "orders", lock.For(time.Minute))
		w.sleep(41 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.Reentrant("orders").Lock(ctx)
		failed, ok := errors.AsType[*lock.NotAcquiredError](err)
		if !ok || failed.Name != "orders" || failed.Kind != "reentrant" || failed.Waited != 3*time.Second || failed.Holder != lease.Owner() || failed.Process == "" || failed.HolderSeen != 200*time.Millisecond ||
			failed.Remaining != 16*time.Second || !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock() = %+v", failed)
		}
		want := fmt.Sprintf(`lock "orders": not acquired after 3s: context deadline exceeded; held by web-7 (%s) 200ms ago; the lease has 16s left`, lease.Owner())
		if err.Error() != want {
			t.Errorf("Lock() = %v, want %s", err, want)
		}
		_, err = mine.Reentrant("orders").TryLock(t.Context())
		want = fmt.Sprintf(`lock "orders": not acquired; held by %s of this process for 44s; the lease has 16s left`, lease.Owner())
		if err.Error() != want || !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v, want %s", err, want)
		}
		mustUnlock(t, lease)
	})
}

// The remaining lease is the holder's, also where refusals tell the end of a turn.
func TestNotAcquiredSaysHowLong(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		for kind, take := range leasedKinds(t, c) {
			if kind == "permits" {
				continue // there are more of them
			}
			hold := leasedKinds(t, mine)[kind]
			if kind == "read" {
				hold = leasedKinds(t, mine)["write"]
			}
			lease, err := hold(t.Context(), lock.For(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			failed := tryFor(t, take, 4*time.Second)
			if want := 56 * time.Second; failed.Holder == "" || (failed.Remaining-want).Abs() > 300*time.Millisecond {
				t.Errorf("%s: held by %q, with %v left, want %v", kind, failed.Holder, failed.Remaining, want)
			}
			mustUnlock(t, lease)
			w.sleep(time.Second)
		}
		renewed := mustLock(t, c, "renewed")
		w.sleep(25 * time.Second)
		if failed := tryFor(t, c.Reentrant("renewed").Lock, 7*time.Second); failed.Remaining != 28*time.Second {
			t.Errorf("a holder in this process, renewed 2s ago: %v left, want 28s", failed.Remaining)
		}
		mustUnlock(t, renewed)
		readers := mine.ReadWrite("rw").Read()
		lease, err := readers.Lock(t.Context(), lock.For(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		failed := tryFor(t, c.ReadWrite("rw").Write().Lock, 4*time.Second)
		if want := 56 * time.Second; (failed.Remaining - want).Abs() > 300*time.Millisecond {
			t.Errorf("a writer behind a reader: %v left, want %v", failed.Remaining, want)
		}
		mustUnlock(t, lease)
	})
}

// Without a holder the time in the text is no lease: those who wait for permits ask each second, however long these are taken.
func TestNotAcquiredSaysWhenToAsk(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, ctx := w.client(lock.Config{}).PermitSemaphore("job"), t.Context()
		if err := s.SetPermits(ctx, 1); err != nil {
			t.Fatal(err)
		}
		lease, err := s.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err = s.Acquire(ctx)
		if want := `lock "job": not acquired after 100ms: context canceled; worth asking again in 900ms`; err == nil || err.Error() != want {
			t.Errorf("Acquire() = %v, want %v", err, want)
		}
		mustUnlock(t, lease)
	})
}

// An answer of the server about a lock names it.
func TestErrorsNameTheLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		hiding := w.client(lock.Config{ShowName: func(string) string { return "(hidden)" }})
		lease := mustLock(t, c, "held", lock.For(time.Minute))
		w.srv.Do("SET", "text", "secret-value")
		plain := func(c *lock.Client, name string) error { _, err := c.Reentrant(name).TryLock(t.Context()); return err }
		ask := func(_ any, err error) error { return err }
		refused := func(err func() error) error {
			w.srv.Deny("evalsha", "eval", "get")
			defer w.srv.Deny()
			return err()
		}
		owner := c.NewOwner()
		again := mustLock(t, c, "again", lock.As(owner))
		gone := mustLock(t, c, "gone")
		w.srv.Do("DEL", "gone")
		unanswered := mustLock(t, c, "mute", lock.For(time.Second))
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if slices.Contains(cmd.Args, "mute") {
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		unsure := unanswered.Unlock(t.Context())
		w.srv.Intercept(nil)
		moved := func(err func() error) error {
			w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Reply("-MOVED 1 other:6379\r\n") })
			defer w.srv.Intercept(nil)
			return err()
		}
		for what, tt := range map[string]struct {
			err   error
			is    error
			shown string
		}{
			"another type":        {plain(c, "text"), lock.ErrWrongType, `lock "text": the key holds something else: `},
			"hidden":              {plain(hiding, "text"), lock.ErrWrongType, `lock (hidden): the key holds something else: `},
			"Lock":                {ask(c.Fair("text").Lock(t.Context())), lock.ErrWrongType, `lock "text": the key`},
			"a name":              {plain(c, "a{b"), lock.ErrInvalid, `lock "a{b": invalid: a name with {`},
			"no name":             {plain(c, ""), lock.ErrInvalid, `lock: invalid: empty name`},
			"a latch's name":      {ask(c.CountDownLatch("{a}").Count(t.Context())), lock.ErrInvalid, `lock "{a}": invalid: `},
			"a lease":             {ask(lock.New(c.Server(), lock.Config{Lease: 1})), lock.ErrInvalid, `lock: invalid: Lease of 1ns, less than 10ms`},
			"an option":           {ask(c.Reentrant("job").TryLock(t.Context(), lock.For(1))), lock.ErrInvalid, `lock "job": invalid: lease of 1ns`},
			"permits":             {c.Semaphore("calls").Acquire(t.Context(), -1), lock.ErrInvalid, `lock "calls": invalid: permits of -1`},
			"permits added":       {c.PermitSemaphore("calls").AddPermits(t.Context(), math.MinInt32), lock.ErrInvalid, `lock "calls": invalid: permits of -2147483648`},
			"no permits":          {ask(c.PermitSemaphore("calls").AcquireMany(t.Context(), 0)), lock.ErrInvalid, `lock "calls": invalid: 0 permits`},
			"no ids":              {c.PermitSemaphore("calls").Release(t.Context()), lock.ErrInvalid, `lock "calls": invalid: 0 permits`},
			"a lifetime":          {ask(c.Semaphore("calls").TrySetPermitsFor(t.Context(), 1, 0)), lock.ErrInvalid, `lock "calls": invalid: a semaphore that lasts 0s`},
			"a count":             {ask(c.CountDownLatch("start").TrySetCount(t.Context(), 0)), lock.ErrInvalid, `lock "start": invalid: a count of 0`},
			"a short Extend":      {lease.Extend(t.Context(), 1), lock.ErrInvalid, `lock "held": invalid: lease of 1ns, less than 10ms`},
			"a needless Extend":   {again.Extend(t.Context(), time.Hour), lock.ErrInvalid, `lock "again": invalid: Extend of`},
			"Downgrade":           {ask(lease.Downgrade(t.Context())), lock.ErrInvalid, `lock "held": invalid: only a write lock`},
			"values":              {ask(c.FasterMulti("group").TryLock(t.Context())), lock.ErrInvalid, `lock "group": invalid: 0 values`},
			"Inspect":             {ask(c.Inspect(t.Context(), "a}")), lock.ErrInvalid, `lock "a}": invalid: `},
			"Info":                {ask(c.Reentrant("text").Info(t.Context())), lock.ErrWrongType, `lock "text": the key`},
			"a cluster's node":    {moved(func() error { return plain(c, "free") }), resp.ErrMoved, `lock "free": MOVED 1 other:6379: the server is a node of a cluster`},
			"permits not set":     {c.Semaphore("calls").TryAcquire(t.Context(), 1), lock.ErrNotSet, `lock "calls": no permits have been set`},
			"a second hold":       {ask(c.NonReentrant("again").TryLock(t.Context(), lock.As(owner))), lock.ErrReentry, `lock "again": the owner already has the lock`},
			"a permit not taken":  {c.PermitSemaphore("calls").Release(t.Context(), strings.Repeat("0", 32)), lock.ErrNotHeld, `lock "calls": not held`},
			"no permit's lease":   {ask(c.PermitSemaphore("calls").LeaseOf(t.Context(), strings.Repeat("0", 32))), lock.ErrNotHeld, `lock "calls": not held`},
			"no id of a permit":   {c.PermitSemaphore("calls").UpdateLease(t.Context(), "1", -1), lock.ErrNotHeld, `lock "calls": not held: not the id`},
			"a lost hold":         {gone.Unlock(t.Context()), lock.ErrNotHeld, `lock "gone": not held`},
			"no answer":           {unsure, lock.ErrUncertain, `lock "mute": not confirmed: `},
			"no right to acquire": {refused(func() error { return plain(c, "free") }), resp.ErrNoPerm, `lock "free": NOPERM`},
			"no right to check":   {refused(func() error { return lease.Check(t.Context()) }), resp.ErrNoPerm, `lock "held": NOPERM`},
			"no right to extend":  {refused(func() error { return lease.Extend(t.Context(), time.Hour) }), resp.ErrNoPerm, `lock "held": NOPERM`},
			"no right to inspect": {refused(func() error { return ask(c.Inspect(t.Context(), "held")) }), resp.ErrNoPerm, `lock "held": NOPERM`},
			"no right to force":   {refused(func() error { return ask(c.Reentrant("held").ForceUnlock(t.Context())) }), resp.ErrNoPerm, `lock "held": NOPERM`},
		} {
			if tt.err == nil || !strings.HasPrefix(tt.err.Error(), tt.shown) || !errors.Is(tt.err, tt.is) || strings.Contains(tt.err.Error(), "secret-value") {
				t.Errorf("%s: %v, want %s...", what, tt.err, tt.shown)
			}
		}
		w.sleep(time.Minute)
		mustUnlock(t, again)
	})
}

// However a context ends, the error is of one type and matches the context's.
func TestDoneContextHasOneError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		for kind, take := range leasedKinds(t, mine) {
			done, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := take(done)
			if _, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("%s: Lock under a done context = %v", kind, err)
			}
		}
		multi := newMulti(t, reentrants(c, "a", "b")...)
		lease := mustLock(t, mine, "b")
		for _, hangs := range []bool{false, true} {
			if hangs {
				w.sleep(5 * time.Second) // for what the Multi gives back
				w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Swallow() })
			}
			for what, take := range map[string]func(context.Context, ...lock.Option) (*lock.Lease, error){
				"Lock": c.Reentrant("b").Lock, "Fair": c.Fair("b").Lock, "Multi": multi.Lock,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := take(ctx)
				cancel()
				failed, ok := errors.AsType[*lock.NotAcquiredError](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrNotAcquired) == hangs {
					t.Errorf("%s, the server hangs %v: %v, %+v", what, hangs, err, failed)
				}
			}
		}
		w.srv.Intercept(nil)
		w.sleep(time.Minute)
		_ = lease.Unlock(t.Context())
		w.sleep(time.Minute)
	})
}

func TestLossSaysWhat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{ShowName: func(name string) string { return strings.ToUpper(name[:1]) + "*" }})
		lease := mustLock(t, c, "orders", lock.For(time.Minute), lock.AtMost(20*time.Second))
		w.sleep(20 * time.Second)
		lost, _ := errors.AsType[*lock.LostError](lease.Err())
		if lost == nil || lost.Name != "orders" || lost.Kind != "reentrant" || lost.Owner != lease.Owner() || lost.Age != 20*time.Second || lost.Remaining != 40*time.Second {
			t.Errorf("Err() = %+v", lost)
		}
		if got, want := lost.Error(), "lock O*: lost after 20s: its time by AtMost is over"; got != want {
			t.Errorf("Err() = %s, want %s", got, want)
		}
		mustUnlock(t, lease)
	})
}

// The end of a context by StopBefore says whether the limit of the hold or a missing renewal is the reason.
func TestEndingSaysWhy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{StopBefore: 5 * time.Second})
		for want, opts := range map[string][]lock.Option{
			`lock "job": its time by AtMost is nearly over`: {lock.AtMost(time.Minute)},
			`lock "job": its lease is about to end`:         {lock.AtMost(time.Minute), lock.For(30 * time.Second)},
		} {
			lease := mustLock(t, c, "job", opts...)
			work, cancel := lease.Context(t.Context())
			<-work.Done()
			lostBecause(t, context.Cause(work), lock.Ending)
			if got := context.Cause(work).Error(); got != want {
				t.Errorf("cause %s, want %s", got, want)
			}
			cancel()
			mustUnlock(t, lease)
		}
	})
}

// logText is what is written, by any goroutine.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *logText) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *logText) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// A line for each event, with all that is known, and not twice within a minute.
func TestLogLines(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		c := w.client(lock.Config{WarnAfter: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		lines := func(event string) (n int) {
			synctest.Wait()
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, event) {
					n++
					if !strings.Contains(line, `kind=reentrant owner=`+c.ID()) || !strings.Contains(line, "age=") || !strings.Contains(line, `orders`) {
						t.Errorf("line %s", line)
					}
				}
			}
			return n
		}
		lease, next := mustLock(t, c, "orders"), make(chan *lock.Lease)
		go func() { next <- mustLock(t, c, "orders") }()
		w.sleep(59 * time.Second)
		if n := lines("held for long"); n != 0 {
			t.Errorf("%d lines after 59 s", n)
		}
		w.sleep(4*time.Minute + time.Second)
		if n := lines("held for long"); n < 3 || n > 5 {
			t.Errorf("%d lines about a hold of 5 minutes\n%s", n, out.String())
		}
		mustUnlock(t, lease)
		second := <-next
		if n := lines("acquired after a long wait"); n != 1 {
			t.Errorf("%d lines about a wait of 5 minutes", n)
		}
		w.srv.Do("DEL", "orders")
		w.sleep(30 * time.Second)
		lostBecause(t, second.Err(), lock.Forced)
		if n := lines("lease lost"); n != 1 {
			t.Errorf("%d lines about the loss", n)
		}
	})
}

func TestJSON(t *testing.T) {
	info := lock.Info{Locked: true, Remaining: 29700 * time.Millisecond, Token: 7, Mode: lock.ModeRead, Permits: lock.Permits{Set: true, Taken: 2},
		Holders: []lock.Holder{{Owner: "a\"\\\n\xff", Holds: 2, Remaining: -1}}, Queue: []lock.Waiter{{Owner: "b", Deadline: time.Second}}}
	in := `{"locked":true,"holders":[{"owner":"a\"\\\u000a` + "\uFFFD" + `","holds":2,"remaining":"never"}],"remaining":"29.7s","mode":"read","token":7,` +
		`"permits":{"set":true,"free":0,"taken":2},"queue":[{"owner":"b","deadline":"1s"}]}`
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		value any
		want  string
	}{
		{info, in},
		{lock.Info{}, `{"locked":false}`},
		{lock.Listed{Name: "n", Shape: lock.ShapeLock}, `{"name":"n","shape":"lock","info":{"locked":false}}`},
		{lock.Inspection{Name: "n", Info: info, Clients: []lock.ClientProcess{{ID: "x"}, {ID: "y", Connected: true, Name: "web", Addr: "h:1", Age: time.Minute}}, ClientsErr: errors.New("no"), Listening: 2},
			`{"name":"n","info":` + in + `,"clients":[{"id":"x","connected":false},{"id":"y","connected":true,"name":"web","addr":"h:1","age":"1m0s"}],"clients_error":"no","listening":2}`},
		{lock.HeldLease{Name: "n", Kind: "fair", Owner: "o", Since: at, Age: time.Second, ValidUntil: at.Add(time.Second), Renewed: true},
			`{"name":"n","kind":"fair","owner":"o","since":"2030-01-02T03:04:05Z","age":"1s","valid_until":"2030-01-02T03:04:06Z","renewed":true}`},
	} {
		got, err := json.Marshal(test.value)
		if err != nil || string(got) != test.want {
			t.Errorf("Marshal(%+v) = %s, %v, want %s", test.value, got, err, test.want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"job": true, "{a}": true, "{a}:b": true, "b:{a}": true, "{a}{": true, "{a}}": true, "{a}{}": true, "a b\x00\xff": true,
		"": false, "{": false, "}": false, "a{b": false, "a}b": false, "{}a": false, "{}": false, "}{": false, "{}{a}": false,
	} {
		if err := lock.CheckName(name); (err == nil) != want || err != nil && !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("CheckName(%q) = %v, want ok %v", name, err, want)
		}
	}
}

func TestUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		id := lock.NewUUID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("UUID %q", id)
		}
		seen[id] = true
	}
}

func TestBadInput(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 10*time.Millisecond - 1} {
			_, err := c.Reentrant("job").Lock(t.Context(), lock.For(d))
			wantErr(t, "Lock for "+d.String(), err, lock.ErrInvalid)
		}
		for _, name := range []string{"", "a{b"} {
			bad := c.Reentrant(name)
			_, err := bad.Lock(t.Context())
			wantErr(t, "Lock", err, lock.ErrInvalid)
			_, err = bad.TryLock(t.Context())
			wantErr(t, "TryLock", err, lock.ErrInvalid)
			_, err = bad.Info(t.Context())
			wantErr(t, "Info", err, lock.ErrInvalid)
			_, err = bad.ForceUnlock(t.Context())
			wantErr(t, "ForceUnlock", err, lock.ErrInvalid)
			wantErr(t, "Do", bad.Do(t.Context(), nil), lock.ErrInvalid)
		}
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL"); n != 0 {
			t.Errorf("%d scripts were sent", n)
		}
		w.srv.Do("SET", "text", "kept")
		_, err := c.Reentrant("text").Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").ForceUnlock(t.Context())
		wantErr(t, "ForceUnlock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").Info(t.Context())
		wantErr(t, "Info", err, lock.ErrWrongType)
		if got := w.srv.Do("GET", "text"); got != "kept" {
			t.Errorf("the key now holds %v", got)
		}
	})
}

func TestBadConfig(t *testing.T) {
	inVirtualTime(t, testBadConfig)
}

func testBadConfig(t *testing.T, w *world) {
	pool := w.pool(conn.Config{})
	defer pool.Close()
	for _, cfg := range []lock.Config{
		{Lease: -1}, {Lease: time.Millisecond}, {RenewEvery: -1}, {Lease: time.Second, RenewEvery: time.Second}, {RenewBatch: -1}, {RenewBatch: 1001}, {HandOverFor: -1},
		{TokenLife: -1}, {TokenLife: 500 * time.Microsecond}, {TokenLife: 29 * time.Second}, {TokenLife: time.Hour, PlainTokens: true},
	} {
		if c, err := lock.New(pool, cfg); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("New(%+v) = %v, %v, want ErrInvalid", cfg, c, err)
		}
	}
}

func lockAndUnlock(t testing.TB, job locker) {
	lease, err := job.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Replies that the scripts cannot give are neither a grant nor a release.
func TestRepliesThatMakeNoSense(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, reply := range []string{"+QUEUED\r\n", "+\r\n", "+0\r\n", "+1\r\n", "*0\r\n", "$1\r\n1\r\n", "%0\r\n", "#t\r\n"} {
			w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
				if _, err := c.Reentrant("job").TryLock(t.Context(), opts...); err == nil {
					t.Errorf("TryLock() answered by %q succeeded", reply)
				}
			}
		}
		w.onScriptOf("read", "acquire", func(int) fakeredis.Action { return fakeredis.Reply("+999999999999999\r\n") })
		if _, err := c.ReadWrite("book").Read().TryLock(t.Context(), lock.As(c.NewOwner())); err == nil {
			t.Error("TryLock() answered by a number of holds that nobody has succeeded")
		}
		for reply, owned := range map[string]bool{
			"+OK\r\n": false, ":0\r\n": false, ":7\r\n": true, ":-1\r\n": false, "*0\r\n": false, "$1\r\nx\r\n": false, "%0\r\n": false,
		} {
			w.srv.Intercept(nil)
			opts := []lock.Option{lock.For(time.Second)}
			if owned {
				opts = append(opts, lock.As(c.NewOwner()))
			}
			lease := mustLock(t, c, "job", opts...)
			w.onScript("release", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			if err := lease.Unlock(t.Context()); err == nil {
				t.Errorf("Unlock() answered by %q succeeded", reply)
			}
			w.sleep(2 * time.Second)
		}
		w.srv.Intercept(nil)
	})
}

// What asks about a lock of one kind, or frees it, leaves a key of another kind alone and says so. Kinds that are one to the server
// stand for each other: those of an RLock, and a semaphore and a latch.
func TestKeyOfAnotherKind(t *testing.T) {
	const hash, readWrite, text, number, group = "hash", "readwrite", "text", "number", "group"
	put := map[string][]string{
		hash:      {"HSET", "job", "00000000-0000-4000-8000-000000000001:7", "2"},
		readWrite: {"HSET", "job", "mode", "read", "00000000-0000-4000-8000-000000000001:7", "1"},
		"writing": {"HSET", "job", "mode", "write", "00000000-0000-4000-8000-000000000001:7:write", "1"},
		text:      {"SET", "job", "00000000-0000-4000-8000-000000000001:7"},
		number:    {"SET", "job", "3"},
		group:     {"HSET", "job", "a", "client:7", "a:client:7:expire_time", "3", "a:client:7:lock_count", "1"},
		"a hash":  {"HSET", "job", "name", "value"},
		"a list":  {"RPUSH", "job", "1"},
	}
	type kind struct {
		info  func(context.Context) (lock.Info, error)
		force func(context.Context) (bool, error)
		takes []string
	}
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		rw, plain, permits := c.ReadWrite("job"), c.Plain("job"), c.PermitSemaphore("job")
		for name, k := range map[string]kind{
			"Reentrant":        {c.Reentrant("job").Info, c.Reentrant("job").ForceUnlock, []string{hash}},
			"NonReentrant":     {c.NonReentrant("job").Info, c.NonReentrant("job").ForceUnlock, []string{hash}},
			"Spin":             {c.Spin("job", lock.Backoff{}).Info, c.Spin("job", lock.Backoff{}).ForceUnlock, []string{hash}},
			"Fenced":           {c.Fenced("job").Info, c.Fenced("job").ForceUnlock, []string{hash}},
			"Fair":             {c.Fair("job").Info, c.Fair("job").ForceUnlock, []string{hash}},
			"NonReentrantFair": {c.NonReentrantFair("job").Info, c.NonReentrantFair("job").ForceUnlock, []string{hash}},
			"Read":             {rw.Read().Info, rw.Read().ForceUnlock, []string{readWrite, "writing"}},
			"Write":            {rw.Write().Info, rw.Write().ForceUnlock, []string{readWrite, "writing"}},
			"Plain":            {plain.Info, plain.ForceUnlock, []string{text}},
			"PermitSemaphore":  {permits.Info, permits.ReleaseAll, []string{number}},
			"Semaphore":        {info: c.Semaphore("job").Info, takes: []string{number}},
			"FasterMulti":      {c.FasterMulti("job", "a").Info, c.FasterMulti("job", "a").ForceUnlock, []string{group}},
		} {
			for what, command := range put {
				w.srv.Do("FLUSHALL")
				w.srv.Do(command...)
				before := w.srv.Dump()
				_, err := k.info(t.Context())
				if slices.Contains(k.takes, what) {
					if err != nil {
						t.Errorf("%s.Info of %s = %v", name, what, err)
					}
					continue
				}
				wantErr(t, name+".Info of "+what, err, lock.ErrWrongType)
				if k.force != nil {
					_, err = k.force(t.Context())
					wantErr(t, name+".ForceUnlock of "+what, err, lock.ErrWrongType)
				}
				if after := w.srv.Dump(); !slices.Equal(before, after) {
					t.Errorf("%s has made %q of %q", name, after, before)
				}
			}
		}
		w.srv.Do("FLUSHALL")
	})
}

// Check of a lease whose key has come to hold another kind says so, and leaves the key alone.
func TestCheckOfAnotherKind(t *testing.T) {
	const other = "00000000-0000-4000-8000-000000000001:7"
	hash, readWrite, number := []string{"HSET", "job", other, "1"}, []string{"HSET", "job", "mode", "read", other, "1"}, []string{"SET", "job", "3"}
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		rw, permits := c.ReadWrite("job"), c.PermitSemaphore("job")
		for name, k := range map[string]struct {
			lock    func(context.Context, ...lock.Option) (*lock.Lease, error)
			strange [][]string
			own     []string // another holder's
		}{
			"Reentrant": {c.Reentrant("job").Lock, [][]string{readWrite, number}, hash},
			"Fenced":    {c.Fenced("job").Lock, [][]string{readWrite, number}, hash},
			"Fair":      {c.Fair("job").Lock, [][]string{readWrite, number}, hash},
			"Read":      {rw.Read().Lock, [][]string{hash, number}, readWrite},
			"Write":     {rw.Write().Lock, [][]string{hash, number}, readWrite},
			"Plain":     {c.Plain("job").Lock, [][]string{hash, readWrite}, []string{"SET", "job", other}},
			"Multi": {func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
				m, err := lock.NewMulti(c.Reentrant("job"))
				if err != nil {
					return nil, err
				}
				return m.Lock(ctx, opts...)
			}, [][]string{readWrite, number}, hash},
			"PermitSemaphore": {func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
				if _, err := permits.TrySetPermits(ctx, 1); err != nil {
					return nil, err
				}
				return permits.Acquire(ctx, opts...)
			}, [][]string{hash, readWrite}, []string{"SET", "job", "1"}},
		} {
			for i, put := range append(k.strange, k.own) {
				w.srv.Do("FLUSHALL")
				lease, err := k.lock(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				w.srv.Do("FLUSHALL")
				w.srv.Do(put...)
				before := w.srv.Dump()
				err = lease.Check(t.Context())
				wantErr(t, name+".Check", err, lock.ErrLost)
				if strange := i < len(k.strange); errors.Is(err, lock.ErrWrongType) != strange {
					t.Errorf("%s.Check beside %q = %v", name, put, err)
				}
				wantErr(t, name+".Err after Check", lease.Err(), lock.ErrLost)
				if after := w.srv.Dump(); !slices.Equal(before, after) {
					t.Errorf("%s.Check has made %q of %q", name, after, before)
				}
			}
		}
		w.srv.Do("FLUSHALL")
	})
}
