//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline_test

import (
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestRepliesInABusyProcess: a goroutine computes on the only processor, and lets others run after each 200 µs. A reply
// needs few of its turns. If the runtime alone polled, a reply would need 50 turns. The same goroutine is the server, whose
// system calls do not block.
func TestRepliesInABusyProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const replies, most = 40, 10
	client, server := socketPair(t)
	l := openOver(client, shared(limits(time.Minute)))
	defer l.close()
	var turn atomic.Int64
	var turns []int64 // of each reply; owned by the caller, and known after done
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range replies {
			before := turn.Load()
			want(t, l, "PONG", "PING")
			turns = append(turns, turn.Load()-before)
		}
	}()
	for closed := false; !closed; runtime.Gosched() {
		for start := time.Now(); time.Since(start) < 200*time.Microsecond; {
		}
		if asked(t, server) {
			if _, err := server.Write([]byte("+PONG\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		turn.Add(1)
		select {
		case <-done:
			closed = true
		default:
		}
	}
	if slices.Sort(turns); turns[replies/2] > most {
		t.Errorf("half of the replies needed more than %d turns of the computing goroutine: %d", most, turns)
	}
}

// socketPair returns the two ends of a connection.
func socketPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// asked reports whether a command has arrived, without waiting.
func asked(t *testing.T, server net.Conn) bool {
	t.Helper()
	rc, err := server.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = rc.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), make([]byte, 64))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}
