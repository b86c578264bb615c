package lock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// goldenStep is a step of a file in testdata/redisson, whose head tells what its lines are.
type goldenStep struct {
	line     int
	number   string // of the call; "" for a pause
	call     []string
	pause    time.Duration
	results  map[string]string // by number of the call
	messages []string
	keys     []string
}

func readGolden(t *testing.T, name string) []goldenStep {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "redisson", name))
	if err != nil {
		t.Fatal(err)
	}
	var steps []goldenStep
	for i, line := range strings.Split(string(text), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		if kind == "" || kind == "#" {
			continue
		}
		if kind == ">" || kind == "~" {
			steps = append(steps, goldenStep{line: i + 1, results: map[string]string{}})
		}
		s := &steps[len(steps)-1]
		switch first, more, _ := strings.Cut(rest, " "); kind {
		case ">":
			s.number, s.call = first, strings.Fields(more)
		case "~":
			ms, _ := strconv.Atoi(rest)
			s.pause = time.Duration(ms) * time.Millisecond
		case "<":
			s.results[first] = more
		case "!":
			s.messages = append(s.messages, rest)
		case "=":
			s.keys = append(s.keys, rest)
		}
	}
	for i := range steps {
		if d, ok := goldenDifferences[name][steps[i].number]; ok {
			if matches(steps[i].keys, d.keys) && slices.Equal(steps[i].messages, d.messages) {
				t.Errorf("%s, call %s: there is no difference", name, steps[i].number)
			}
			steps[i].keys, steps[i].messages = d.keys, d.messages
		}
	}
	return steps
}

// goldenDifferences are where we leave something else than Redisson on purpose, by file and number of the call.
var goldenDifferences = map[string]map[string]goldenDifference{
	"readwrite.txt": readWriteDifferences,
}

// goldenDifference is what our call leaves, and why.
type goldenDifference struct {
	why            string
	messages, keys []string
}

// replay runs the calls of a golden file with our locks.
type replay struct {
	t        *testing.T
	observer *conn.Pool
	messages *pubsub.Subscription
	clients  map[string]*lock.Client
	owners   map[string]lock.Owner
	mu       sync.Mutex
	leases   map[string][]*lock.Lease // by caller; guarded by mu
	running  map[string]chan string   // calls that have not returned
	later    []goldenStep             // calls that would wait behind one that waits
	settle   func(done func() bool)   // waits for what the step has set going
	pause    func(time.Duration)
}

func (r *replay) run(steps []goldenStep) {
	heard := []string{}
	for _, step := range steps {
		if step.number != "" {
			r.start(step)
		} else {
			r.pause(step.pause)
		}
		for number, want := range step.results {
			r.result(step, number, want)
		}
		var keys []string
		r.settle(func() bool {
			keys = r.dump()
			heard = append(heard, r.heard()...)
			return matches(keys, step.keys) && len(heard) >= len(step.messages)
		})
		if !matches(keys, step.keys) {
			r.t.Errorf("line %d, %v: the server has\n\t%q\nRedisson leaves\n\t%q", step.line, step.call, keys, step.keys)
		}
		if !slices.Equal(heard, step.messages) && len(heard)+len(step.messages) > 0 {
			r.t.Errorf("line %d, %v: published %q, Redisson publishes %q", step.line, step.call, heard, step.messages)
		}
		heard = heard[:0]
	}
	if len(r.running) != 0 || len(r.later) != 0 {
		r.t.Errorf("calls have not returned: %v, %v", r.running, r.later)
	}
}

// start starts a call. Of several that wait at once the first alone is started: who of two clients is served first is a
// matter of chance, and the file has one order.
func (r *replay) start(step goldenStep) {
	if len(r.running) > 0 && len(step.results) == 0 {
		r.later = append(r.later, step)
		return
	}
	done := make(chan string, 1)
	r.running[step.number] = done
	go func() { done <- r.call(step.call) }()
}

func (r *replay) result(step goldenStep, number, want string) {
	if r.running[number] == nil && len(r.later) > 0 {
		next := r.later[0]
		r.later = r.later[1:]
		done := make(chan string, 1)
		r.running[next.number] = done
		done <- r.call(next.call)
	}
	timeout, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	select {
	case got := <-r.running[number]:
		if got != want && !(step.call[1] == "ttl" && closeTo(got, want)) {
			r.t.Errorf("line %d: call %s returned %q, Redisson's %q", step.line, number, got, want)
		}
	case <-timeout.Done():
		r.t.Fatalf("line %d: call %s has not returned", step.line, number)
	}
	delete(r.running, number)
}

func closeTo(got, want string) bool {
	g, err := strconv.Atoi(got)
	w, _ := strconv.Atoi(want)
	return err == nil && g > w*2/3 && g <= 30000
}

// call does what Redisson's method of that name does: caller, method, lock, arguments.
func (r *replay) call(call []string) string {
	half, call := halfOf(call)
	caller, method, name := call[0], call[1], call[2]
	var numbers []time.Duration
	for _, arg := range call[3:] {
		ms, _ := strconv.Atoi(arg)
		numbers = append(numbers, time.Duration(ms)*time.Millisecond)
	}
	l, owner, stack := half.lock(r.clients[caller[:1]], name), r.owners[caller].String()+half.suffix, caller+half.suffix
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch method {
	case "lock", "trylock":
		return r.lock(ctx, l, caller, stack, method, numbers)
	case "unlock":
		if held := r.pop(stack); held == nil || held.Unlock(ctx) != nil {
			return "error IllegalMonitorStateException"
		}
		return "unlocked"
	case "force":
		forced, err := l.ForceUnlock(ctx)
		return fmt.Sprint(forced, ifError(err))
	}
	info, err := l.Info(ctx)
	holds := int64(0)
	for _, h := range info.Holders {
		if h.Owner == owner {
			holds = h.Holds
		}
	}
	switch method {
	case "isheld":
		return fmt.Sprint(holds > 0, ifError(err))
	case "holdcount":
		return fmt.Sprint(holds, ifError(err))
	case "islocked":
		return fmt.Sprint(info.Locked, ifError(err))
	case "ttl":
		return fmt.Sprint(info.Remaining.Milliseconds(), ifError(err))
	}
	return "no method " + method
}

func ifError(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}

func (r *replay) lock(ctx context.Context, l locker, caller, stack, method string, numbers []time.Duration) string {
	opts := []lock.Option{lock.As(r.owners[caller])}
	if len(numbers) > 0 {
		opts = append(opts, lock.For(numbers[len(numbers)-1]))
	}
	acquire, ok := l.Lock, "locked"
	if method == "trylock" {
		ok = "true"
		if len(numbers) == 0 {
			acquire = l.TryLock
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, numbers[0])
			defer cancel()
		}
	}
	lease, err := acquire(ctx, opts...)
	if err != nil {
		return "false"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[stack] = append(r.leases[stack], lease)
	return ok
}

// pop returns the lease that caller took last, nil if there is none.
func (r *replay) pop(caller string) *lock.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.leases[caller]
	if len(held) == 0 {
		return nil
	}
	r.leases[caller] = held[:len(held)-1]
	return held[len(held)-1]
}

// heard returns the messages that have come since the last call.
func (r *replay) heard() []string {
	var list []string
	for {
		select {
		case event := <-r.messages.Events():
			if event.Kind == pubsub.Message {
				list = append(list, event.Channel+" "+event.Payload)
			}
		default:
			return list
		}
	}
}

// dump returns the hashes of the server in the form of the golden files, the rest as type and name.
func (r *replay) dump() []string {
	var lines []string
	for key := range r.do("KEYS", "*").All() {
		name, _ := key.Text()
		kind, _ := r.do("TYPE", name).Text()
		left, _ := r.do("PTTL", name).Int()
		if kind == "string" {
			value, _ := r.do("GET", name).Text()
			lines = append(lines, fmt.Sprintf("%s %s %d %s", kind, r.callers(name), left, value))
			continue
		} else if kind != "hash" {
			lines = append(lines, kind+" "+r.callers(name))
			continue
		}
		fields := r.do("HGETALL", name)
		var list []string
		for field, value := range fields.Pairs() {
			owner, _ := field.Text()
			count, _ := value.Text()
			list = append(list, " "+r.callers(owner)+"="+count)
		}
		slices.Sort(list)
		lines = append(lines, fmt.Sprintf("%s %s %d%s", kind, name, left, strings.Join(list, "")))
	}
	slices.Sort(lines)
	return lines
}

// callers puts the caller in the place of each owner in text.
func (r *replay) callers(text string) string {
	for caller, o := range r.owners {
		if before, after, found := strings.Cut(text, o.String()); found {
			text = before + caller + after
		}
	}
	return text
}

func (r *replay) do(args ...any) resp.Value {
	r.t.Helper()
	v, err := r.observer.Do(r.t.Context(), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// matches reports whether keys are the ones wanted. Where the latter have the lease last set, the former have what is left of it.
func matches(keys, want []string) bool {
	return slices.EqualFunc(keys, want, func(key, want string) bool {
		k, w := strings.Fields(key), strings.Fields(want)
		if len(k) < 3 || len(k) != len(w) {
			return false
		}
		left, _ := strconv.Atoi(k[2])
		set, _ := strconv.Atoi(w[2])
		k[2], w[2] = "", ""
		return slices.Equal(k, w) && left <= set && left > set*2/3-250
	})
}

// newReplay makes the callers A1, A2 and B1 on pools that open opens.
func newReplay(t *testing.T, cfg lock.Config, open func() *conn.Pool) *replay {
	t.Helper()
	r := &replay{
		t:       t,
		clients: map[string]*lock.Client{},
		owners:  map[string]lock.Owner{},
		leases:  map[string][]*lock.Lease{},
		running: map[string]chan string{},
	}
	var closers []func() error
	for _, name := range []string{"A", "B"} {
		pool := open()
		c, err := lock.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		closers = append(closers, c.Close, pool.Close)
		r.clients[name] = c
		for _, thread := range []string{"1", "2"} {
			r.owners[name+thread] = c.NewOwner()
		}
	}
	r.observer = open()
	events := pubsub.New(r.observer, pubsub.Config{Queue: 64})
	closers = append(closers, events.Close, r.observer.Close)
	var err error
	if r.messages, err = events.PSubscribe(t.Context(), "redisson*"); err != nil {
		t.Fatal(err)
	}
	r.pause = func(time.Duration) {}
	r.settle = func(done func() bool) { done() }
	t.Cleanup(func() {
		for _, closer := range closers {
			if err := closer(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// In virtual time every step takes 250 ms, about what it took when the files were recorded.
func TestGoldenInVirtualTime(t *testing.T) {
	for file, cfg := range map[string]lock.Config{
		"lock.txt":     {},
		"watchdog.txt": {Lease: 3 * time.Second},

		"readwrite.txt":   {},
		"watchdog-rw.txt": {Lease: 3 * time.Second},
	} {
		t.Run(file, func(t *testing.T) {
			steps := readGolden(t, file)
			inVirtualTime(t, func(t *testing.T, w *world) {
				r := newReplay(t, cfg, func() *conn.Pool { return w.pool() })
				r.pause = time.Sleep
				r.settle = func(done func() bool) {
					time.Sleep(250 * time.Millisecond)
					synctest.Wait()
					done()
				}
				r.run(steps)
			})
		})
	}
}
