//go:build !race

package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// agreeable is a connection to a server that says yes to everything, and allocates nothing in doing so: what is counted
// is this module's own.
type agreeable struct {
	mu      sync.Mutex
	cond    sync.Cond
	replies bytes.Buffer
	closed  bool
}

func (a *agreeable) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range bytes.Count(b, []byte("\r\nHELLO\r\n")) {
		a.replies.WriteString("%1\r\n+proto\r\n:3\r\n")
	}
	for range bytes.Count(b, []byte("\r\nSETINFO\r\n")) {
		a.replies.WriteString("+OK\r\n")
	}
	for range bytes.Count(b, []byte("\r\nSETNAME\r\n")) {
		a.replies.WriteString("+OK\r\n")
	}
	for range bytes.Count(b, []byte("\r\nSCRIPT\r\n")) {
		a.replies.WriteString("+OK\r\n")
	}
	for range bytes.Count(b, []byte("\r\nEVALSHA\r\n")) {
		if bytes.Contains(b, []byte("\r\nredisson_lock__channel:")) { // the release
			a.replies.WriteString(":1\r\n")
		} else {
			a.replies.WriteString("_\r\n")
		}
	}
	for range bytes.Count(b, []byte("\r\nDEL\r\n")) {
		a.replies.WriteString(":1\r\n")
	}
	a.cond.Broadcast()
	return len(b), nil
}

func (a *agreeable) Read(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.replies.Len() == 0 && !a.closed {
		a.cond.Wait()
	}
	if a.closed {
		return 0, io.EOF
	}
	return a.replies.Read(b)
}

func (a *agreeable) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.cond.Broadcast()
	return nil
}

func (a *agreeable) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "agreeable"} }
func (a *agreeable) RemoteAddr() net.Addr             { return a.LocalAddr() }
func (a *agreeable) SetDeadline(time.Time) error      { return nil }
func (a *agreeable) SetReadDeadline(time.Time) error  { return nil }
func (a *agreeable) SetWriteDeadline(time.Time) error { return nil }

// agreeableClient returns a client of such a server.
func agreeableClient(t testing.TB) *lock.Client {
	t.Helper()
	return clientOf(t, dialAgreeable, nil, nil)
}

func dialAgreeable() net.Conn {
	a := new(agreeable)
	a.cond.L = &a.mu
	return a
}

// clientOf returns a client whose connections are what dial returns, with the traces commands and locks.
func clientOf(t testing.TB, dial func() net.Conn, commands *conn.Trace, locks *lock.Trace) *lock.Client {
	t.Helper()
	pool, err := conn.Open(t.Context(), conn.Config{Trace: commands, Dial: func(context.Context, string, string) (net.Conn, error) {
		return dial(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{Trace: locks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // a busy machine takes its time to undo a thousand waits
		defer cancel()
		if err := c.CloseContext(ctx); err != nil {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Under the race detector allocations are other ones: make test runs this without.
func TestAllocations(t *testing.T) {
	c := agreeableClient(t)
	ctx, cancel := context.WithCancel(t.Context()) // as those of users, it can end
	defer cancel()
	pair := func(job *lock.Reentrant) {
		lease, err := job.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(2000, func() { pair(c.Reentrant("job")) }); got > 8 {
		t.Errorf("%v allocations for a lock object, Lock and Unlock, want at most 8", got)
	}
	job := c.Reentrant("job")
	if got := testing.AllocsPerRun(2000, func() { pair(job) }); got > 6 {
		t.Errorf("%v allocations for Lock and Unlock, want at most 6", got)
	}
}

// Callbacks add three allocations to the six of Lock and Unlock: one for the acquire and its hold, and one for each command.
func TestAllocationsOfTraces(t *testing.T) {
	var events atomic.Int64
	c := clientOf(t, dialAgreeable, &conn.Trace{
		CommandStart: func(ctx context.Context, _ conn.CommandStart) context.Context { return ctx },
		CommandEnd:   func(context.Context, conn.CommandEnd) { events.Add(1) },
	}, &lock.Trace{
		AcquireStart: func(ctx context.Context, _ lock.AcquireStart) context.Context { return ctx },
		AcquireEnd:   func(context.Context, lock.AcquireEnd) { events.Add(1) },
		ReleaseStart: func(ctx context.Context, _ lock.ReleaseStart) context.Context { return ctx },
		ReleaseEnd:   func(context.Context, lock.ReleaseEnd) { events.Add(1) },
	})
	job := c.Reentrant("job")
	lockAndUnlock(t, job) // dials
	events.Store(0)
	const runs = 2000
	if got := testing.AllocsPerRun(runs, func() { lockAndUnlock(t, job) }); got > 9 {
		t.Errorf("%v allocations for Lock and Unlock with callbacks, want at most 9", got)
	}
	if n, want := events.Load(), int64(4*(runs+1)); n < want { // AllocsPerRun runs once more; a slow machine deletes latches meanwhile
		t.Errorf("%d events, want %d", n, want)
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	job := agreeableClient(b).Reentrant("job")
	b.ReportAllocs()
	for b.Loop() {
		lockAndUnlock(b, job)
	}
}

// reluctant is an agreeable connection to a server whose locks are all taken, by somebody who does not say for how long.
type reluctant struct {
	agreeable
	part []byte // of a command whose rest has not been written yet; owned by the writer
}

func (r *reluctant) Write(b []byte) (int, error) {
	all := append(r.part, b...)
	whole := wholeCommands(all)
	r.part = bytes.Clone(all[whole:])
	for cmd := range bytes.SplitSeq(all[:whole], []byte("*")) {
		switch args := bytes.Split(cmd, []byte("\r\n")); {
		case len(args) < 3:
		case string(args[2]) == "SUBSCRIBE":
			name := string(args[4])
			r.reply(">3\r\n$9\r\nsubscribe\r\n$" + strconv.Itoa(len(name)) + "\r\n" + name + "\r\n:1\r\n")
		case string(args[2]) == "EVALSHA":
			r.reply(":-1\r\n")
		default:
			if _, err := r.agreeable.Write(append([]byte("*"), cmd...)); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// wholeCommands returns the length of the commands in b that are complete.
func wholeCommands(b []byte) (n int) {
	for at := 0; at < len(b); n = at {
		line, _, ok := bytes.Cut(b[at:], []byte("\r\n"))
		if !ok {
			return n
		}
		words, _ := strconv.Atoi(string(line[1:]))
		at += len(line) + 2
		for range words {
			line, _, ok := bytes.Cut(b[at:], []byte("\r\n"))
			if !ok {
				return n
			}
			length, _ := strconv.Atoi(string(line[1:]))
			if at += len(line) + 2 + length + 2; at > len(b) {
				return n
			}
		}
	}
	return n
}

func (r *reluctant) reply(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies.WriteString(text)
	r.cond.Broadcast()
}

// What a caller who waits takes of this process: its stack of 4 KiB, which is the least for one that has used the network, what
// the runtime keeps for a goroutine and for what it waits on, and the rest this module's. Next to nothing of the stack may be in
// use for it to be no larger.
func TestAllocationsOfWaiters(t *testing.T) {
	const waiters, most = 1000, 9 << 10
	type waits func(ctx context.Context) error
	locking := func(h lock.Handle) waits {
		return func(ctx context.Context) error { _, err := h.Lock(ctx); return err }
	}
	for name, prepare := range map[string]func(c *lock.Client, name string) waits{
		"reentrant": func(c *lock.Client, name string) waits { return locking(c.Reentrant(name).Handle) },
		"in line":   func(c *lock.Client, _ string) waits { return locking(c.Reentrant("job").Handle) },
		"fenced":    func(c *lock.Client, name string) waits { return locking(c.Fenced(name).Handle) },
		"fair":      func(c *lock.Client, name string) waits { return locking(c.Fair(name).Handle) },
		"read":      func(c *lock.Client, name string) waits { return locking(c.ReadWrite(name).Read().Handle) },
		"write":     func(c *lock.Client, name string) waits { return locking(c.ReadWrite(name).Write().Handle) },
		"semaphore": func(c *lock.Client, name string) waits {
			s := c.Semaphore(name)
			return func(ctx context.Context) error { return s.Acquire(ctx, 1) }
		},
		"permits": func(c *lock.Client, name string) waits {
			s := c.PermitSemaphore(name)
			return func(ctx context.Context) error { _, err := s.Acquire(ctx); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, func() net.Conn {
				r := new(reluctant)
				r.cond.L = &r.mu
				return r
			}, nil, nil)
			c.OnlyWoken()
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			start := func(i int) {
				wait := prepare(c, fmt.Sprint("job:", i))
				waiting.Go(func() {
					if wait(ctx) == nil {
						t.Error("got the lock")
					}
				})
			}
			defer waiting.Wait()
			defer cancel()
			start(0) // whose goroutines and connections are there for all
			standing(t, c, 1)
			before := inUse()
			for i := range waiters {
				start(1 + i)
			}
			standing(t, c, 1+waiters)
			// Some of them are about to be told that they are subscribed, and to look once more.
			each := (inUse() - before) / waiters
			for end := time.Now().Add(patience); each > most && time.Now().Before(end); {
				each = (inUse() - before) / waiters
			}
			if each > most {
				t.Errorf("%d bytes for each, want at most %d", each, most)
			}
			t.Logf("%s: %d bytes for each", name, each)
		})
	}
}

// standing waits for n callers to wait.
func standing(t *testing.T, c *lock.Client, n int) {
	t.Helper()
	for end := time.Now().Add(patience); c.Stats().Waiting < n; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d callers wait, want %d", c.Stats().Waiting, n)
		}
	}
}

// inUse is the heap and the stacks that are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
