package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestFullSocket: the peer stops reading. Every caller leaves when its ctx ends, including the writer. Commands that
// no writer has taken are withdrawn and never reach the server.
func TestFullSocket(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		l := open(t, srv, pipeline.Config{Timeout: time.Minute, PingInterval: -1, Shared: true})
		defer l.close()
		srv.ClearLog()
		srv.Stall(true)
		start := time.Now()
		call := func(after time.Duration, name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := l.Do(ctx, "SET", name, strings.Repeat("x", 4<<10))
			if d := time.Since(start); d != after {
				t.Errorf("%s left after %v, want %v", name, d, after)
			}
			return err
		}
		var wg sync.WaitGroup
		var writing, waiting error
		wg.Go(func() { writing = call(2*time.Second, "writing") })
		synctest.Wait()
		wg.Go(func() { waiting = call(time.Second, "waiting") })
		wg.Wait()
		wantFailure(t, writing, errSent, context.DeadlineExceeded)
		wantFailure(t, waiting, errNotSent, context.DeadlineExceeded)

		srv.Stall(false)
		want(t, l, "PONG", "PING")
		for _, cmd := range srv.Log() {
			if len(cmd.Args) > 1 && cmd.Args[1] == "waiting" {
				t.Error("the server got a command that was withdrawn")
			}
		}
		if n := srv.Count("SET"); n != 1 {
			t.Errorf("server saw %d SET, want 1", n)
		}
	})
}

// TestRoom: more bytes wait than there is room for. Callers wait for room, under their ctx, and go on.
func TestRoom(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		l := open(t, srv, pipeline.Config{Timeout: time.Hour, PingInterval: -1, Shared: true})
		defer l.close()
		srv.Stall(true)
		big := strings.Repeat("x", 1<<20)
		var wg sync.WaitGroup
		for range 3 { // the first is being written, the second is pending, the third has no room
			wg.Go(func() { want(t, l, "OK", "SET", "big", big) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Do(ctx, "SET", "late", big)
		wantFailure(t, err, errNotSent, context.DeadlineExceeded)
		srv.Stall(false)
		wg.Wait()
		if n := srv.Count("SET"); n != 3 {
			t.Errorf("server saw %d SET, want 3", n)
		}
	})
}

// TestRoomInOrder: callers that wait for room get it one by one, in the order of their arrival. If each wake-up went to all, thousands of callers
// would wake for each command that is withdrawn.
func TestRoomInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(1 << 10)
		l := open(t, srv, pipeline.Config{Timeout: time.Hour, PingInterval: -1, Shared: true})
		defer l.close()
		srv.ClearLog()
		srv.Stall(true)
		big := strings.Repeat("x", 1<<20)
		var wg sync.WaitGroup
		var order []string
		for i := range 30 {
			name := fmt.Sprint("big", i)
			if i%7 != 3 { // the others leave early
				order = append(order, name)
				wg.Go(func() { want(t, l, "OK", "SET", name, big) })
			} else {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Second)
					defer cancel()
					_, err := l.Do(ctx, "SET", name, big)
					wantFailure(t, err, errNotSent, context.DeadlineExceeded)
				})
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		srv.Stall(false)
		wg.Wait()
		var got []string
		for _, cmd := range srv.Log() {
			if cmd.Name == "SET" {
				got = append(got, cmd.Args[1])
			}
		}
		if !slices.Equal(got, order) {
			t.Errorf("the server got %v, want %v", got, order)
		}
	})
}

// TestOrder: many callers, some with batches, share one connection. Each gets its own replies, and no batch is split.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Latency(time.Millisecond)
		l := open(t, srv, shared(limits(5*time.Second)))
		defer l.close()
		srv.ClearLog()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for j := range 20 {
					if j%5 != 0 {
						n := i*100 + j
						v, err := l.Do(context.Background(), "ECHO", n)
						if got, _ := v.Int(); err != nil || got != int64(n) {
							t.Errorf("ECHO %d = %d, %v", n, got, err)
						}
						continue
					}
					batch := []resp.Command{resp.Cmd("ECHO", i), resp.Cmd("ECHO", -i), resp.Cmd("ECHO", i)}
					values, err := l.SendBatch(context.Background(), batch)
					if err != nil || len(values) != 3 {
						t.Errorf("SendBatch = %d values, %v", len(values), err)
						return
					}
					for k, v := range values {
						if got, _ := v.Text(); got != batch[k].Arg(1) {
							t.Errorf("reply %d of a batch = %s, want %s", k, got, batch[k].Arg(1))
						}
					}
				}
			})
		}
		wg.Wait()
		log := srv.Log()
		for i, cmd := range log {
			n, inside := strings.CutPrefix(cmd.Args[1], "-")
			if inside && (log[i-1].Args[1] != n || log[i+1].Args[1] != n) {
				t.Errorf("commands around %v are %v and %v", cmd, log[i-1], log[i+1])
			}
		}
		if len(log) != 50*(16+3*4) {
			t.Errorf("server saw %d commands, want %d", len(log), 50*(16+3*4))
		}
	})
}

// countedWrites is a connection that counts its writes.
type countedWrites struct {
	net.Conn
	n *atomic.Int64
}

func (c countedWrites) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// TestWritesAreShared: many callers call at once, repeatedly, on one processor, and most commands share a write.
// Without the yield before a write each command would have its own write.
func TestWritesAreShared(t *testing.T) {
	const callers, calls = 64, 50
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var writes atomic.Int64
		nc, err := srv.Dial(t.Context(), "tcp", "server:6379")
		if err != nil {
			t.Fatal(err)
		}
		l := openOver(countedWrites{nc, &writes}, shared(limits(5*time.Second)))
		defer l.close()
		srv.Latency(time.Millisecond)
		writes.Store(0)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range calls {
					echo(t, context.Background(), l, i)
				}
			})
		}
		wg.Wait()
		if n := writes.Load(); n > callers*calls/8 {
			t.Errorf("%d writes for %d commands, want at least 8 commands to a write", n, callers*calls)
		}
	})
}

// closingServer answers what reaches it, and says why it closes the connection. The first write waits for a value of begin, and the
// second one fails after bytes bytes.
type closingServer struct {
	net.Conn
	begin  chan struct{}
	writes int
	bytes  int
}

func (c *closingServer) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		<-c.begin
		return len(b), nil
	}
	return min(c.bytes, len(b)), io.ErrClosedPipe
}

// What a server says at the end of the connection is no reply to a command of which a failed write has sent nothing.
func TestGoodbyeAfterAFailedWrite(t *testing.T) {
	size := len(resp.Cmd("INCR", "n").Encoded())
	for _, sent := range []int{1, 2, 3} { // commands of three
		t.Run(fmt.Sprint(sent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, server := net.Pipe()
				nc := &closingServer{Conn: ours, begin: make(chan struct{}), bytes: (sent - 1) * size}
				l := openOver(nc, shared(limits(5*time.Second)))
				replies, errs := make([]resp.Value, 3), make([]error, 3)
				var wg sync.WaitGroup
				for i := range replies {
					wg.Go(func() { replies[i], errs[i] = l.Do(t.Context(), "INCR", "n") })
					synctest.Wait()
				}
				close(nc.begin)
				synctest.Wait()
				if _, err := io.WriteString(server, strings.Repeat(":1\r\n", sent)+"-ERR goodbye\r\n"); err != nil {
					t.Error(err)
				}
				wg.Wait()
				for i, err := range errs {
					if i < sent {
						if n, wrong := replies[i].Int(); err != nil || wrong != nil || n != 1 {
							t.Errorf("command %d = %v, %v; want its reply", i+1, replies[i], err)
						}
						continue
					}
					if wantFailure(t, err, errNotSent, io.ErrClosedPipe); err == nil || !strings.Contains(err.Error(), "goodbye") {
						t.Errorf("command %d: %v, want the server's reason", i+1, err)
					}
				}
				l.close()
				_ = server.Close()
			})
		})
	}
}

// What a server says at the end of the connection is no reply to a command of a batch, of which a failed write has sent nothing.
func TestGoodbyeWithinABatch(t *testing.T) {
	cmds := []resp.Command{resp.Cmd("SET", "k", "*1\r\n$1\r\n*\r\n"), resp.Cmd("INCR", "n"), resp.Cmd("INCR", "n")}
	for bytes := range len(cmds[0].Encoded()) + 2*len(cmds[1].Encoded()) {
		synctest.Test(t, func(t *testing.T) {
			ours, server := net.Pipe()
			nc := &closingServer{Conn: ours, begin: make(chan struct{}), bytes: bytes}
			l := openOver(nc, shared(limits(5*time.Second)))
			var wg sync.WaitGroup
			wg.Go(func() { want(t, l, "PONG", "PING") })
			synctest.Wait()
			var replies []resp.Value
			var err, behind error
			wg.Go(func() { replies, err = l.SendBatch(t.Context(), cmds) })
			synctest.Wait()
			wg.Go(func() { _, behind = l.Do(t.Context(), "INCR", "n") })
			synctest.Wait()
			close(nc.begin)
			synctest.Wait()
			whole, begun, left := 0, 0, bytes // commands received, as a whole and in part
			for _, cmd := range cmds {
				if left > 0 {
					begun++
				}
				if left -= len(cmd.Encoded()); left >= 0 {
					whole++
				}
			}
			if _, err := io.WriteString(server, "+PONG\r\n"+strings.Repeat(":1\r\n", whole)+"-ERR goodbye\r\n"); err != nil {
				t.Error(err)
			}
			_ = server.Close()
			wg.Wait()
			if len(replies) != begun {
				t.Errorf("%d bytes sent: replies to %d commands, want %d", bytes, len(replies), begun)
			}
			for i, v := range replies {
				if (v.Err() != nil) != (i >= whole) {
					t.Errorf("%d bytes sent: command %d = %v, of %d received", bytes, i+1, v, whole)
				}
			}
			wantFailure(t, behind, errNotSent, io.ErrClosedPipe)
			switch {
			case begun == len(cmds):
				if err != nil {
					t.Errorf("%d bytes sent: %v, want all replies", bytes, err)
				}
			case begun == 0:
				wantFailure(t, err, errNotSent, io.ErrClosedPipe)
			default:
				wantFailure(t, err, errSent, io.ErrClosedPipe)
			}
			if told := err != nil && strings.Contains(err.Error(), "goodbye"); told != (whole == begun) {
				t.Errorf("%d bytes sent: %v; with the server's reason: %v, want %v", bytes, err, told, whole == begun)
			}
			l.close()
		})
	}
}

// A Link that fails waits for its writer, a caller or writeLoop, and then ends.
func TestFailDuringAWrite(t *testing.T) {
	for i := range 400 {
		client, server := net.Pipe()
		l := openOver(client, limits(time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		if i%2 == 0 { // with a ctx that cannot end the caller writes itself
			ctx = context.Background()
		}
		done := make(chan error)
		go func() {
			_, err := l.Do(ctx, "GET", "key")
			done <- err
		}()
		for range i % 4 {
			runtime.Gosched()
		}
		l.Fail(errClosed)
		if err := <-done; !errors.Is(err, errClosed) {
			t.Errorf("Do = %v, want %v", err, errClosed)
		}
		l.wg.Wait()
		cancel()
		_ = server.Close()
	}
}

// heldWriter is a connection whose Write returns when the test lets it.
type heldWriter struct {
	net.Conn
	returns chan struct{}
}

func (w heldWriter) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	<-w.returns
	return n, err
}

// A connection that was reset behind bytes that nobody has read fails its Link, and the next command ends.
func TestResetBehindUnreadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go func() {
			_, _ = server.Read(make([]byte, 100))
			_, _ = server.Write([]byte("+PONG\r\n"))
		}()
		slow := heldWriter{client, make(chan struct{})}
		s := pipeline.NewSession(slow, slow, resp.Limits{})
		var reset atomic.Bool
		s.Unread(func() (bool, error) {
			if reset.Load() {
				return true, syscall.ECONNRESET
			}
			return false, nil
		})
		l := new(link)
		l.Link = pipeline.New(s, limits(time.Second), l, &l.wg)
		ctx, cancel := context.WithCancel(t.Context()) // with a ctx that can end writeLoop writes
		defer cancel()
		if _, err := l.Do(ctx, "PING"); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			_, err := l.Do(ctx, "PING")
			second <- err
		}()
		synctest.Wait()
		reset.Store(true)
		close(slow.returns)
		synctest.Wait()
		select {
		case err := <-second:
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Do = %v, want %v", err, syscall.ECONNRESET)
			}
		default:
			t.Error("the command has not ended")
		}
		_ = server.Close()
	})
}
