package lock_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
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

// readGolden returns the kind that a file is about, the watchdog's lease, and the steps as they have to be with our locks.
func readGolden(t *testing.T, name string) (kind string, lease time.Duration, steps []goldenStep) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "redisson", name))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		first, more, _ := strings.Cut(rest, " ")
		switch mark {
		case "", "#":
			continue
		case "@":
			ms, _ := strconv.Atoi(more)
			kind, lease = first, time.Duration(ms)*time.Millisecond
			continue
		case ">", "~":
			steps = append(steps, goldenStep{line: i + 1, results: map[string]string{}})
		}
		s := &steps[len(steps)-1]
		switch mark {
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
	applyDifferences(t, goldenFiles[name].differs, steps)
	return kind, lease, steps
}

// applyDifferences makes steps of what Redisson did what we do.
func applyDifferences(t *testing.T, differs []difference, steps []goldenStep) {
	t.Helper()
	for _, d := range differs {
		i := slices.IndexFunc(steps, func(s goldenStep) bool { return s.number == d.call })
		if i < 0 || !regexp.MustCompile(`^(A\d+|§\d+): `).MatchString(d.why) {
			t.Fatalf("difference at call %s: no such call, or no reason: %s", d.call, d.why)
		}
		s, changes := &steps[i], false
		for number, result := range d.results {
			changes = changes || s.results[number] != result
			s.results[number] = result
		}
		if d.messages != nil {
			changes = changes || !slices.Equal(s.messages, d.messages)
			s.messages = d.messages
		}
		if d.keys != nil {
			changes = changes || !slices.Equal(s.keys, d.keys)
			s.keys = d.keys
		}
		if !changes {
			t.Errorf("difference at call %s is none: %s", d.call, d.why)
		}
	}
}

// replay runs the calls of a golden file with our locks.
type replay struct {
	t        *testing.T
	observer *conn.Pool
	messages *pubsub.Subscription
	clients  map[string]*lock.Client
	owners   map[string]lock.Owner
	mu       sync.Mutex
	leases   map[string][]*lock.Lease // by caller and lock; guarded by mu
	aliases  map[string]string        // what a text on the server is called in the file; guarded by mu
	running  map[string]chan string   // calls that have not returned
	later    []goldenStep             // calls that would wait behind one that waits
	slow     bool                     // requests may come to nothing for lack of CPU, which leaves latches for a while
	inLine   bool                     // calls wait all at once, since the server keeps their order
	stands   string                   // number of a call that stands in line before the next step
	anyOrder bool                     // of the messages of a step
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
		for _, number := range slices.SortedFunc(maps.Keys(step.results), byNumber) {
			r.result(step, number, step.results[number])
		}
		var keys []string
		r.settle(func() bool {
			keys = r.dump()
			heard = append(heard, r.heard()...)
			stands := step.number == "" || step.number != r.stands || r.someoneStands()
			return stands && matches(keys, step.keys) && len(heard) >= len(step.messages)
		})
		if !matches(keys, step.keys) {
			r.t.Errorf("line %d, %v: the server has\n\t%q\nRedisson leaves\n\t%q", step.line, step.call, keys, step.keys)
		}
		if r.anyOrder {
			slices.Sort(heard)
			slices.Sort(step.messages)
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

func byNumber(a, b string) int {
	m, _ := strconv.Atoi(a)
	n, _ := strconv.Atoi(b)
	return m - n
}

// start starts a call. Of several that wait at once the first alone is started: who of two clients is served first is a
// matter of chance, and the file has one order.
func (r *replay) start(step goldenStep) {
	if len(r.running) > 0 && len(step.results) == 0 && !r.inLine {
		r.later = append(r.later, step)
		return
	}
	done := make(chan string, 1)
	r.running[step.number] = done
	go func() { done <- r.call(step.call) }()
}

func (r *replay) result(step goldenStep, number, want string) {
	for r.running[number] == nil && len(r.later) > 0 {
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
		if got != want && !(tellsTime(step.call) && closeTo(got, want)) {
			r.t.Errorf("line %d: call %s returned %q, Redisson's %q", step.line, number, got, want)
		}
	case <-timeout.Done():
		r.t.Fatalf("line %d: call %s has not returned", step.line, number)
	}
	delete(r.running, number)
}

// tellsTime reports whether the result of a call is a time that is left.
func tellsTime(call []string) bool {
	return call[1] == "ttl" || call[1] == "pexsem" && call[2] == "lease"
}

func closeTo(got, want string) bool {
	g, err := strconv.Atoi(got)
	w, _ := strconv.Atoi(want)
	return err == nil && g > w*2/3 && g <= 30000
}

// heard returns the messages that have come since the last call.
func (r *replay) heard() []string {
	var list []string
	for {
		select {
		case event := <-r.messages.Events():
			shorter := event.Payload == kinds.ShorterMessage && strings.Contains(event.Channel, "lock") // Redisson tells nobody
			if event.Kind == pubsub.Message && !shorter {
				channel := event.Channel
				if lock, waiter, ok := strings.Cut(channel, "}:"); ok && len(strings.TrimRight(waiter, ":rw")) == 36 {
					channel = lock + "}" // whom we call, Redisson wakes with all
				}
				list = append(list, r.named(channel+" "+event.Payload))
			}
		default:
			return list
		}
	}
}

// dump returns the keys of the server in the form of the golden files, with what is left of their lives.
func (r *replay) dump() []string {
	seconds, _ := r.do("TIME").At(0).Int()
	var lines []string
	for key := range r.do("KEYS", "*").All() {
		name, _ := key.Text()
		if r.slow && strings.HasPrefix(name, "redisson_unlock_latch:") || strings.HasPrefix(name, "lockwire_line:") && r.settled(name) {
			continue
		}
		kind, _ := r.do("TYPE", name).Text()
		left, _ := r.do("PTTL", name).Int()
		life, parts := strconv.FormatInt(left, 10), r.parts(kind, name, seconds*1000)
		if left == -1 {
			life = "-"
		}
		lines = append(lines, r.named(fmt.Sprintf("%s %s %s %s", kind, name, life, strings.Join(parts, " "))))
	}
	return lines
}

// settled reports whether nobody has still to leave a line: while no call waits, only clients that know of no line may have a place.
func (r *replay) settled(line string) bool { return len(r.running) > 0 || r.visitorsOnly(line) }

func (r *replay) visitorsOnly(line string) bool {
	for place := range r.do("ZRANGE", line, "0", "-1").All() {
		if text, _ := place.Text(); strings.TrimPrefix(text, "!") != "*" {
			return false
		}
	}
	return true
}

// someoneStands reports whether a client has a place in a line, and listens for its turn.
func (r *replay) someoneStands() bool {
	for line := range r.do("KEYS", "lockwire_line:*").All() {
		name, _ := line.Text()
		if !r.visitorsOnly(name) {
			return r.do("PUBSUB", "CHANNELS", "redisson*}:*").Len() > 0
		}
	}
	return false
}

func (r *replay) parts(kind, name string, now int64) (parts []string) {
	switch kind {
	case "string":
		text, _ := r.do("GET", name).Text()
		parts = append(parts, text)
	case "list":
		for e := range r.do("LRANGE", name, 0, -1).All() {
			text, _ := e.Text()
			parts = append(parts, text)
		}
	case "hash":
		pairs, _ := r.do("HGETALL", name).Pairs()
		for field, value := range pairs {
			f, _ := field.Text()
			v, _ := value.Text()
			parts = append(parts, r.named(f)+"="+v)
		}
		slices.Sort(parts)
	case "zset":
		for e := range r.do("ZRANGE", name, 0, -1).All() {
			member, _ := e.Text()
			score, _ := r.do("ZSCORE", name, member).Text()
			if at, err := strconv.ParseFloat(score, 64); err == nil && at > 9e11 && at < 1e13 {
				score = fmt.Sprintf("+%d", int64(at)-now)
			}
			parts = append(parts, member+"="+score)
		}
	}
	return parts
}

// named gives owners, and whatever else has an alias, their names in the file.
func (r *replay) named(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pairs []string
	for from := range r.aliases {
		pairs = append(pairs, from)
	}
	slices.SortFunc(pairs, func(a, b string) int { return len(b) - len(a) }) // client:12 is not client:1 and a 2
	for _, from := range pairs {
		text = strings.ReplaceAll(text, from, r.aliases[from])
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

// matches reports whether keys are the ones wanted, in any order.
func matches(keys, want []string) bool {
	byName := func(lines []string) [][]string {
		var list [][]string
		for _, line := range lines {
			fields := strings.Fields(line)
			if fields[0] == "zset" {
				slices.Sort(fields[3:]) // members whose scores are the same are in no order
			}
			list = append(list, fields)
		}
		slices.SortFunc(list, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
		return list
	}
	return slices.EqualFunc(byName(keys), byName(want), func(key, want []string) bool {
		for i := range want {
			if i >= len(key) || key[i] != want[i] && !(i >= 2 && nearly(key[i], want[i])) {
				return false
			}
		}
		return len(key) == len(want)
	})
}

// nearly reports whether got is what may be left of a time last set, each as a number, or as a number behind an = and a +.
func nearly(got, set string) bool {
	g, left, timed := strings.Cut(got, "=+")
	w, life, _ := strings.Cut(set, "=+")
	if !timed {
		g, w, left, life = "", "", got, set
	}
	n, err := strconv.Atoi(left)
	m, fail := strconv.Atoi(life)
	return err == nil && fail == nil && g == w && m > 99 && n <= m+m/20 && n > m*2/3-250
}

// newReplay makes the callers A1 to A3 and B1 to B3 on pools that open opens.
func newReplay(t *testing.T, cfg lock.Config, open func() *conn.Pool) *replay {
	t.Helper()
	r := &replay{
		t:       t,
		clients: map[string]*lock.Client{},
		owners:  map[string]lock.Owner{},
		leases:  map[string][]*lock.Lease{},
		aliases: map[string]string{},
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
		for _, thread := range []string{"1", "2", "3"} {
			owner := c.NewOwner()
			r.owners[name+thread] = owner
			r.aliases[owner.String()] = name + thread
		}
	}
	r.observer = open()
	events := pubsub.New(r.observer, pubsub.Config{})
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
	for name, file := range goldenFiles {
		t.Run(name, func(t *testing.T) {
			_, lease, steps := readGolden(t, name)
			cfg := file.cfg
			cfg.Lease = lease
			inVirtualTime(t, func(t *testing.T, w *world) {
				r := newReplay(t, cfg, func() *conn.Pool { return w.pool(conn.Config{}) })
				r.inLine, r.anyOrder, r.stands = file.inLine, file.anyOrder, file.stands
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

// Each file about a kind that there is is replayed.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "testdata", "redisson", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %v, %v", files, err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		kind, _, _ := readGolden(t, name)
		if _, ok := goldenFiles[name]; !ok && kinds.All()[kind] != nil {
			t.Errorf("%s, about locks of kind %s, is not replayed", name, kind)
		}
	}
}

func goldenRead(c *lock.Client, name string) goldenLock { return c.ReadWrite(name).Read() }

func goldenWrite(c *lock.Client, name string) goldenLock { return c.ReadWrite(name).Write() }

const readWriteChannel = "redisson_rwlock:{g:rw} "

var readWriteDifferences = []difference{
	{call: "10", why: "A26: a further write hold does not add its lease to what is left",
		keys: []string{"hash g:rw 30000 B1:write=2 mode=write"}},
	{call: "11", why: "A26: as before", keys: writtenAndRead},
	{call: "12", why: "A26: as before", keys: writtenAndRead},
	{
		call: "14", why: "A14: the end of a write lock beneath which its owner reads lets other readers in at once",
		messages: []string{readWriteChannel + "1"},
		keys: []string{
			"hash g:rw 30000 A1=1 B1=1 mode=read",
			"string {g:rw}:A1:rwlock_timeout:1 30000 1", "string {g:rw}:B1:rwlock_timeout:1 30000 1",
		},
	},
	{call: "15", why: "A14: so this is not the last reader any more", messages: []string{}},
	{call: "25", why: "A27: the release calls the reader at the head of the line, and the first reader lets in clients that know nothing of the line",
		messages: []string{readWriteChannel + "1", readWriteChannel + "1"}},
	{call: "27", why: "A9: a release of what is not held changes nothing, and tells nobody that it did", messages: []string{}},
	{call: "31", why: "A9: as call 27", messages: []string{}},
}

var writtenAndRead = []string{"hash g:rw 30000 B1:write=2 B1=1 mode=write", "string {g:rw}:B1:rwlock_timeout:1 30000 1"}

var watchdogReadWriteDifferences = []difference{
	{call: "3", why: "§9: as long as the other reader, whose renewal was less long ago than when Redisson's was recorded",
		keys: []string{"hash g:rw 3000 A2=1 mode=read", "string {g:rw}:A2:rwlock_timeout:1 3000 1"}},
}

// goldenMulti is a lock of the names that a file has with commas between.
type goldenMulti struct{ *lock.Multi }

func openMulti(c *lock.Client, list string) goldenLock {
	m, err := lock.NewMulti(reentrants(c, strings.Split(list, ",")...)...)
	if err != nil {
		panic(err)
	}
	return goldenMulti{m}
}

func (m goldenMulti) Info(ctx context.Context) (lock.Info, error) {
	infos, err := m.Multi.Info(ctx)
	return infos[0], err
}

// TestGoldenRedlock replays red.txt with each of its locks on a server of its own, since a Redlock on one server is refused.
// Redisson's waits for the second lock while it could have the others, and gives the first a lease that nobody asked for;
// ours has its majority at once. What follows from that differs until call 5. (§13: the locks are asked one after another,
// each for a part of the wait.)
func TestGoldenRedlock(t *testing.T) {
	_, _, steps := readGolden(t, "red.txt")
	ours := map[string]goldenStep{
		"2": {results: map[string]string{"2": "locked"}, keys: []string{"hash r:1 30000 A=1", "hash r:2 30000 A=1", "hash r:3 30000 A=1"}},
		"3": {results: map[string]string{"3": "false"}, keys: []string{"hash r:1 30000 A=1", "hash r:2 30000 A=1", "hash r:3 30000 A=1"}},
		"4": {results: map[string]string{"4": "unlocked"}, keys: []string{"hash r:2 30000 A=1"}},
		"5": {results: map[string]string{"5": "unlocked"}},
	}
	inFleet(t, 3, func(t *testing.T, f fleet) {
		callers := map[string]process{"A": f.process(lock.Config{}), "B": f.process(lock.Config{})}
		leases := map[string]*lock.Lease{}
		for _, step := range steps {
			if differs, ok := ours[step.number]; ok {
				step.results, step.keys = differs.results, differs.keys
			}
			got := redCall(t, callers[step.call[0][:1]], leases, step.call)
			if want := step.results[step.number]; got != want {
				t.Errorf("line %d, %v: returned %q, want %q", step.line, step.call, got, want)
			}
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
			var want []string
			for _, line := range step.keys {
				want = append(want, strings.NewReplacer("A1=", "A=", "A2=", "A=", "B1=", "B=").Replace(line))
			}
			if keys := f.redKeys(callers); !matches(keys, want) {
				t.Errorf("line %d, %v: the servers have\n\t%q\nwant\n\t%q", step.line, step.call, keys, want)
			}
		}
		f.free()
	})
}

// redCall does what a line of the file says.
func redCall(t *testing.T, p process, leases map[string]*lock.Lease, call []string) string {
	var nodes []lock.Member
	for i, name := range []string{"r:1", "r:2", "r:3"} {
		nodes = append(nodes, p[i].Reentrant(name))
	}
	r, err := lock.NewRedlock(lock.RedlockConfig{}, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	c := goldenCall{method: call[1], caller: call[0], name: call[2], args: call[3:]}
	var lease *lock.Lease
	result := "locked"
	switch c.method {
	case "lock":
		lease, err = p[1].Reentrant(c.name).Lock(t.Context(), lock.For(c.ms(0)))
	case "redlock":
		lease, err = r.Lock(t.Context(), lock.For(c.ms(0)))
	case "tryredlock":
		ctx, cancel := context.WithTimeout(t.Context(), c.ms(0))
		defer cancel()
		lease, err = r.Lock(ctx, lock.For(c.ms(1)))
		result = fmt.Sprint(err == nil)
		err = nil
	case "unlock", "unredlock":
		result, err = "unlocked", leases[c.caller].Unlock(t.Context())
	}
	if err != nil {
		return "error " + err.Error()
	}
	leases[c.caller] = lease
	return result
}

// redKeys are the locks on the servers, whose holders are named for the process that they are of.
func (f fleet) redKeys(callers map[string]process) (lines []string) {
	for i, w := range f {
		keys, _ := w.srv.Do("KEYS", "*").([]any)
		for _, k := range keys {
			name := k.(string)
			hash, _ := w.srv.Do("HGETALL", name).([]any)
			line := fmt.Sprintf("hash %s %v", name, w.srv.Do("PTTL", name))
			for j := 0; j+1 < len(hash); j += 2 {
				for caller, p := range callers {
					if strings.HasPrefix(hash[j].(string), p[i].ID()+":") {
						line += fmt.Sprintf(" %s=%v", caller, hash[j+1])
					}
				}
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
