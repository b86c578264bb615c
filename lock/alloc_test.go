//go:build !race

package lock_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
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
		if bytes.Contains(b, []byte("\r\nPUBLISH\r\n")) { // the release
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
	return clientOf(t, func() net.Conn {
		a := new(agreeable)
		a.cond.L = &a.mu
		return a
	})
}

// clientOf returns a client whose connections are what dial returns.
func clientOf(t testing.TB, dial func() net.Conn) *lock.Client {
	t.Helper()
	pool, err := conn.Open(t.Context(), conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		return dial(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{})
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

func BenchmarkLockUnlock(b *testing.B) {
	job := agreeableClient(b).Reentrant("job")
	b.ReportAllocs()
	for b.Loop() {
		lockAndUnlock(b, job)
	}
}
