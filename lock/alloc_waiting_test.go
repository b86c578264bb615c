//go:build !race

package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

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
	const waiters, most = 1000, 8 << 10
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
			})
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
