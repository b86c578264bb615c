package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// Each of Redisson's own tests of its locks has a test here that shows the same, or a word on why not. They are listed in
// testdata/redisson-tests/list.txt; the answers are the tables in the other files there: a heading with the name of the
// class, then rows of a test's name and ours. Ours is a list of names with commas, subtests with slashes, or "not: " and why.
// Each has one row.
func TestRedissonTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "redisson-tests", "list.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(text)), "\n")
	files, err := filepath.Glob(filepath.Join("testdata", "redisson-tests", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %v, %v", files, err)
	}
	tests := testsOfRepository(t)
	answered := map[string]string{}
	for _, file := range files {
		for _, row := range tableRows(t, file) {
			name := row.heading + " " + row.cells[0]
			if other := answered[name]; other != "" {
				t.Errorf("%s: %s has a row already, in %s", file, name, other)
			}
			if answered[name] = file; !slices.Contains(listed, name) {
				t.Errorf("%s: %s is not listed", file, name)
			}
			for _, problem := range tests.missing(row.cells[1]) {
				t.Errorf("%s: %s: %s", file, name, problem)
			}
		}
	}
	for _, name := range listed {
		if answered[name] == "" {
			t.Errorf("%s has no row", name)
		}
	}
}

// Each fault of Redisson's that has a number in testdata/anomalies.md has a test that we do not share it.
func TestAnomalies(t *testing.T) {
	tests, rows := testsOfRepository(t), map[string]bool{}
	for _, row := range tableRows(t, filepath.Join("testdata", "anomalies.md")) {
		number := row.cells[0]
		if rows[number] {
			t.Errorf("%s has two rows", number)
		}
		rows[number] = true
		for _, problem := range tests.missing(row.cells[2]) {
			t.Errorf("%s: %s", number, problem)
		}
		if !strings.HasPrefix(row.cells[2], "not: ") && !strings.Contains(row.cells[2], "Test"+number) {
			t.Errorf("%s: no test is named by the number: %s", number, row.cells[2])
		}
	}
	for n := range 30 {
		if number := fmt.Sprintf("A%02d", n+1); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
	for name := range tests.functions {
		if m := regexp.MustCompile(`^TestA\d\d`).FindString(name); m != "" && !rows[m[4:]] {
			t.Errorf("%s is about a fault that is not in the table", name)
		}
	}
}

// tableRow is a row of a Markdown table and the last heading before it.
type tableRow struct {
	heading string
	cells   []string
}

func tableRows(t *testing.T, file string) (rows []tableRow) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	heading, head := "", true
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			heading = line[len("## "):]
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "|-"), strings.HasPrefix(line, "| -"):
			head = false
		case !head:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, tableRow{heading, cells})
		}
	}
	if len(rows) == 0 {
		t.Errorf("%s has no table", file)
	}
	return rows
}

// repositoryTests is what the test files say, and the package of tests for all servers.
type repositoryTests struct {
	functions map[string]bool
	text      string
}

func testsOfRepository(t *testing.T) repositoryTests {
	t.Helper()
	tests, text := repositoryTests{functions: map[string]bool{}}, strings.Builder{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w+)\(`)
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go", "../*/*_test.go", "../internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllStringSubmatch(string(source), -1) {
				tests.functions[m[1]] = true
			}
			text.Write(source)
		}
	}
	tests.text = text.String()
	return tests
}

// missing reports what is wrong with an answer: tests that are not there, or no word on why there is none.
func (r repositoryTests) missing(answer string) (problems []string) {
	if why, none := strings.CutPrefix(answer, "not: "); none {
		if len(strings.Fields(why)) < 3 {
			problems = append(problems, "it does not say why not")
		}
		return problems
	}
	for name := range strings.SplitSeq(answer, ",") {
		parts := strings.Split(strings.TrimSpace(name), "/")
		if !r.functions[parts[0]] {
			problems = append(problems, fmt.Sprintf("there is no test %q", parts[0]))
		}
		for _, part := range parts[1:] {
			if !strings.Contains(r.text, `"`+part+`"`) {
				problems = append(problems, fmt.Sprintf("there is no subtest %q", part))
			}
		}
	}
	return problems
}

// Faults of Redisson's RLock that we do not share, by their numbers in testdata/anomalies.md. Each is shown with redisson first:
// a test that it passed would show nothing.

// redisson does what Redisson's RLock does on the server, watchdog included. It is for virtual time.
type redisson struct {
	srv *fakeredis.Server

	mu       sync.Mutex     // guards the following
	watched  map[string]int // holds that are renewed, by lock and owner
	order    []string       // of watched
	renewals int
	over     bool
}

// reentrantAcquire stands for the source of Redisson's script, at the fake server. KEYS lock; ARGV owner, lease in ms.
const reentrantAcquire = "redisson: lock, acquire"

func newRedisson(w *world) *redisson {
	r := &redisson{srv: w.srv, watched: map[string]int{}}
	w.srv.Script(reentrantAcquire, func(c *fakeredis.Call) any {
		if c.Int("EXISTS", c.Keys[0]) == 1 && c.Int("HEXISTS", c.Keys[0], c.Args[0]) == 0 {
			return int64(0)
		}
		c.Do("HINCRBY", c.Keys[0], c.Args[0], "1")
		return c.Do("PEXPIRE", c.Keys[0], c.Args[1])
	})
	w.t.Cleanup(r.stop)
	return r
}

// stop ends all renewals.
func (r *redisson) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// lock acquires for a lease, or with the watchdog if that is 0, and reports whether it has.
func (r *redisson) lock(name, owner string, lease time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	renewed := lease == 0
	if renewed {
		lease = 30 * time.Second
	}
	if r.srv.Do("EVAL", reentrantAcquire, "1", name, owner, fmt.Sprint(lease.Milliseconds())) == int64(0) {
		return false
	}
	if renewed {
		if len(r.watched) == 0 {
			time.AfterFunc(10*time.Second, r.renew)
		}
		key := name + " " + owner
		if r.watched[key]++; !slices.Contains(r.order, key) {
			r.order = append(r.order, key)
		}
	}
	return true
}

// unlock gives a hold back. lease is that of the object it is called on.
func (r *redisson) unlock(name, owner string, lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.srv.Do("HINCRBY", name, owner, "-1").(int64) > 0 {
		r.srv.Do("PEXPIRE", name, fmt.Sprint(lease.Milliseconds()))
	} else {
		r.srv.Do("DEL", name)
	}
	key := name + " " + owner
	if r.watched[key]--; r.watched[key] <= 0 {
		delete(r.watched, key)
		r.order = slices.DeleteFunc(r.order, func(k string) bool { return k == key })
	}
}

// renew is a pass, which ends at the first that fails. Another follows while there is anything to renew.
func (r *redisson) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.watched) == 0 || r.over {
		return
	}
	for _, key := range r.order {
		var name, owner string
		fmt.Sscan(key, &name, &owner)
		if r.srv.Do("TYPE", name) == fakeredis.Status("string") {
			break // WRONGTYPE
		}
		if r.srv.Do("HEXISTS", name, owner) == int64(1) {
			r.srv.Do("PEXPIRE", name, "30000")
		}
		r.renewals++
	}
	time.AfterFunc(10*time.Second, r.renew)
}

// An acquire that is sent again counts as one.
func TestA01(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		r := newRedisson(w)
		for range 2 { // the answer to the first was lost
			r.lock("job", "redisson:1", time.Minute)
		}
		if got := w.srv.Do("HGET", "job", "redisson:1"); got != "2" {
			t.Fatalf("Redisson has %v holds, so this shows nothing", got)
		}
		w.srv.Do("DEL", "job")

		outer := mustLock(t, c, "job", lock.As(owner))
		w.onScript("acquire", func(n int) fakeredis.Action {
			if n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		inner, err := c.Reentrant("job").Lock(ctx, lock.As(owner))
		if err != nil {
			t.Fatalf("Lock() = %v", err)
		}
		if got := w.srv.Do("HGET", "job", owner.String()); got != "2" {
			t.Errorf("two holds are counted as %v", got)
		}
		mustUnlock(t, inner)
		mustUnlock(t, outer)
		w.sleep(latchLife)
		w.free()
	})
}

// A further hold with a shorter lease, and its end, leave the outer hold what it had.
func TestA06(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := newRedisson(w)
		r.lock("job", "redisson:1", time.Minute)
		if r.lock("job", "redisson:1", time.Second); w.ttl("job") >= time.Minute {
			t.Errorf("Redisson leaves %v, so this shows nothing", w.ttl("job"))
		}
		if r.unlock("job", "redisson:1", 30*time.Second); w.ttl("job") >= time.Minute {
			t.Errorf("Redisson goes back to %v, so this shows nothing", w.ttl("job"))
		}
		w.srv.Do("DEL", "job")

		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner), lock.For(time.Minute))
		inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Second))
		if got := w.ttl("job"); got != time.Minute {
			t.Errorf("the lease is %v with a further hold", got)
		}
		w.sleep(500 * time.Millisecond)
		mustUnlock(t, inner)
		if got := w.ttl("job"); got != time.Minute-500*time.Millisecond {
			t.Errorf("the lease is %v after it", got)
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// The end of a further hold that had a lease does not end the renewal of the outer one.
func TestA07(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := newRedisson(w)
		r.lock("job", "redisson:1", 0)
		r.lock("job", "redisson:1", 20*time.Second)
		r.unlock("job", "redisson:1", 20*time.Second)
		if w.sleep(31 * time.Second); w.srv.Do("EXISTS", "job") == int64(1) {
			t.Error("Redisson still has the lock, so this shows nothing")
		}

		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner))
		mustUnlock(t, mustLock(t, c, "job", lock.As(owner), lock.For(20*time.Second)))
		w.sleep(time.Minute)
		if err := outer.Err(); err != nil || w.ttl("job") < 20*time.Second {
			t.Errorf("the outer hold: %v, and %v left", err, w.ttl("job"))
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// A lock that cannot be renewed keeps no other from it, and its holder is told.
func TestA08(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := newRedisson(w)
		for _, name := range []string{"a", "b", "c"} {
			r.lock(name, "redisson:1", 0)
		}
		w.srv.Do("DEL", "b")
		w.srv.Do("SET", "b", "x")
		if w.sleep(31 * time.Second); w.srv.Do("EXISTS", "c") == int64(1) {
			t.Error("Redisson still has the lock behind the one that fails, so this shows nothing")
		}
		r.stop()
		w.srv.Do("DEL", "a", "b", "c")

		c := w.client(lock.Config{})
		leases := map[string]*lock.Lease{}
		for _, name := range []string{"a", "b", "c"} {
			leases[name] = mustLock(t, c, name)
		}
		w.srv.Do("DEL", "b")
		w.srv.Do("SET", "b", "x")
		w.sleep(time.Minute)
		for name, lease := range leases {
			if err := lease.Err(); (err == nil) != (name != "b") {
				t.Errorf("%s: Err() = %v", name, err)
			}
		}
		mustUnlock(t, leases["a"])
		mustUnlock(t, leases["c"])
		w.srv.Do("DEL", "b")
		w.free()
	})
}

// However often locks come and go, one is renewed once every third of its lease.
func TestA25(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := newRedisson(w)
		for range 20 {
			r.lock("job", "redisson:1", 0)
			r.unlock("job", "redisson:1", 30*time.Second)
			w.sleep(100 * time.Millisecond)
		}
		r.lock("job", "redisson:1", 0)
		w.sleep(time.Minute)
		if r.stop(); r.renewals < 100 {
			t.Errorf("Redisson renews %d times in a minute, so this shows nothing", r.renewals)
		}
		w.srv.Do("DEL", "job")

		c := w.client(lock.Config{})
		for range 20 {
			mustUnlock(t, mustLock(t, c, "job"))
			w.sleep(100 * time.Millisecond)
		}
		lease := mustLock(t, c, "job")
		before := c.Stats().Renewals
		w.sleep(time.Minute + time.Second)
		if n := c.Stats().Renewals - before; n != 6 {
			t.Errorf("%d renewals in a minute, want 6", n)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// Any number of locks can be waited for at once, over one connection.
func TestA28(t *testing.T) {
	const waits, redissons = 600, 50 * 5 // the latter on as many connections as there may be
	inVirtualTime(t, func(t *testing.T, w *world) {
		slots, turnedAway := make(chan struct{}, redissons), 0
		for range waits {
			select {
			case slots <- struct{}{}:
			case <-time.After(7500 * time.Millisecond):
				turnedAway++
			}
		}
		if turnedAway == 0 {
			t.Error("Redisson has all wait, so this shows nothing")
		}

		holder, c := w.client(lock.Config{}), w.client(lock.Config{})
		var leases []*lock.Lease
		got := make(chan error, waits)
		for i := range waits {
			name := fmt.Sprint("job-", i)
			leases = append(leases, mustLock(t, holder, name))
			go func() { got <- c.Reentrant(name).Do(t.Context(), func(context.Context) error { return nil }) }()
		}
		w.sleep(time.Minute)
		synctest.Wait()
		subscribed := 0
		for i := range waits {
			subscribed += w.srv.Subscribers(fmt.Sprintf("redisson_lock__channel:{job-%d}", i))
		}
		if n := len(w.srv.Conns()); subscribed != waits || n > 4 { // for each client commands and subscriptions
			t.Errorf("%d subscriptions on %d connections, want %d on 3", subscribed, n, waits)
		}
		for _, lease := range leases {
			mustUnlock(t, lease)
		}
		for range waits {
			if err := <-got; err != nil {
				t.Errorf("a wait: %v", err)
			}
		}
		w.free()
	})
}

// Redisson's holder is waited for, until it gives its value back or its lease has ended; of its dead hold nothing is left.
func TestFasterMultiBesideRedisson(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		const hold = fieldA + ":java:1"
		take := func(left time.Duration) {
			ends := fmt.Sprint(time.Now().Add(left).UnixMilli())
			w.srv.Do("HSET", "group", fieldA, "java:1", hold+":expire_time", ends, hold+":lock_count", "2")
			w.pexpire("group", left.Milliseconds())
		}
		for _, releases := range []bool{true, false} {
			begin := time.Now()
			take(20 * time.Second)
			_, err := c.FasterMulti("group", "a").TryLock(t.Context())
			if denied, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || denied.Remaining != 20*time.Second {
				t.Errorf("TryLock() = %v", err)
			}
			w.pexpire("group", 60_000) // somebody else has another value
			got := make(chan *lock.Lease)
			go func() { got <- mustHaveValues(t, c, "order:1", "a") }()
			w.sleep(5 * time.Second)
			want := 20 * time.Second
			if releases {
				want = 5 * time.Second
				w.srv.Do("HDEL", "group", fieldA, hold+":expire_time", hold+":lock_count")
				w.srv.Do("PUBLISH", groupChannel, "0")
			}
			lease := <-got
			if took := time.Since(begin); took < want || took > want+100*time.Millisecond {
				t.Errorf("the waiter has the lock after %v, want %v", took, want)
			}
			w.wantValue(fieldA, lease.Owner(), 30*time.Second)
			if n := w.srv.Do("HLEN", "group"); n != int64(6) {
				t.Errorf("%v fields, want three for each value", n)
			}
			mustUnlock(t, lease)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A10: leases are judged by the clock of the server, wherever those of the clients are.
func TestA10(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 40 * time.Second, time.Hour} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.srv.Clock(ahead)
			c, other := w.client(lock.Config{}), w.client(lock.Config{})
			lease := mustHaveValues(t, c, "1", "2")
			for range 10 {
				w.sleep(9 * time.Second)
				_, err := other.FasterMulti("group", "2").TryLock(t.Context())
				wantErr(t, "TryLock", err, lock.ErrNotAcquired)
			}
			mustUnlock(t, lease)
			mustUnlock(t, mustHaveValues(t, other, "2"))
			w.free()
		})
	}
}

// redissonPermitAcquire takes a permit by Redisson's rule, after it has put back what is over by the clock of its caller.
// KEYS number leases; ARGV id, end of its lease, now
func redissonPermitAcquire(c *fakeredis.Call) any {
	for _, over := range c.Do("ZRANGEBYSCORE", c.Keys[1], "0", c.Args[2]).([]any) {
		c.Do("ZREM", c.Keys[1], over.(string))
		c.Do("INCR", c.Keys[0])
	}
	if free, ok := c.Do("GET", c.Keys[0]).(string); !ok || number(free) < 1 {
		return nil
	}
	c.Do("DECR", c.Keys[0])
	c.Do("ZADD", c.Keys[1], c.Args[1], c.Args[0])
	return "OK"
}

// The leases of permits are as good as the clocks of Redisson's clients: one that is ahead takes a permit of ours, whose holder learns of it at the
// next renewal, and the permit of one that is behind is over for us.
func TestPermitsByRedissonsClock(t *testing.T) {
	const script, minute = "redisson: permit, acquire", time.Minute
	theirs := func(w *world, clock time.Duration) bool {
		w.srv.Script(script, redissonPermitAcquire)
		now := time.Now().Add(clock)
		return w.srv.Do("EVAL", script, "2", "job", "{job}:timeout", "0123456789abcdef", text(now.Add(minute/2).UnixMilli()), text(now.UnixMilli())) == "OK"
	}
	for _, clock := range []time.Duration{0, minute} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			s := c.PermitSemaphore("job")
			if _, err := s.TrySetPermits(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			lease, err := s.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := theirs(w, clock); got != (clock > 0) {
				t.Errorf("with a clock ahead by %v Redisson has our permit: %v", clock, got)
			}
			w.sleep(15 * time.Second)
			if lost := lease.Err() != nil; lost != (clock > 0) {
				t.Errorf("with a clock ahead by %v, after a renewal: %v", clock, lease.Err())
			}
			lease.Unlock(t.Context())
			w.srv.Do("DEL", "job", "{job}:timeout")
			w.free()
		})
	}
	for _, clock := range []time.Duration{0, -minute} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			s := w.client(lock.Config{}).PermitSemaphore("job")
			if _, err := s.TrySetPermits(t.Context(), 1); err != nil || !theirs(w, clock) {
				t.Fatal("Redisson has no permit", err)
			}
			lease, err := s.TryAcquire(t.Context())
			if got := err == nil; got != (clock < 0) {
				t.Errorf("with a clock behind by %v we have Redisson's permit: %v", -clock, err)
			}
			if err == nil {
				mustUnlock(t, lease)
			}
			w.srv.Do("DEL", "job", "{job}:timeout")
			w.free()
		})
	}
}
