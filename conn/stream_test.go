package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

func TestStreamOrder(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		p.expect("SUBSCRIBE a", "GET k", "PING")
		p.reply(">3|$9|subscribe|$1|a|:1|-WRONGTYPE no|", ">2|$1|x|$1|y|", "+PONG|")
		p.expectClose()
	})
	s := open(t, cfg)
	err := s.Write(t.Context(), resp.Cmd("SUBSCRIBE", "a"), resp.Cmd("GET", "k"), resp.Cmd("PING"))
	if err != nil {
		t.Fatalf("Write = %v", err)
	}
	for _, want := range []resp.Kind{resp.Push, resp.SimpleError, resp.Push, resp.SimpleString} {
		if v, err := s.Read(); err != nil || v.Kind() != want {
			t.Errorf("Read = %v, %v; want %v", v.Kind(), err, want)
		}
	}
	s.Close()
}

// TestStreamWriters: commands of one Write stay together, with many concurrent writers.
func TestStreamWriters(t *testing.T) {
	const writers = 16
	pair := encode("SUBSCRIBE a") + encode("UNSUBSCRIBE b")
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		for range writers {
			if got := p.written(); got != pair {
				t.Errorf("client wrote %q, want %q", got, pair)
			}
		}
		p.expectClose()
	})
	s := open(t, cfg)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			err := s.Write(t.Context(), resp.Cmd("SUBSCRIBE", "a"), resp.Cmd("UNSUBSCRIBE", "b"))
			if err != nil {
				t.Errorf("Write = %v", err)
			}
		})
	}
	wg.Wait()
	s.Close()
}

// TestCloseDuringStream: Close ends a dial of Stream, at each moment of the dial, and waits for it.
func TestCloseDuringStream(t *testing.T) {
	for name, hold := range map[string]func(cfg *conn.Config, srv *fakeredis.Server){
		"connecting": func(_ *conn.Config, srv *fakeredis.Server) { srv.Unreachable(true) },
		"handshake":  func(_ *conn.Config, srv *fakeredis.Server) { srv.Mute(true) },
		"already there": func(cfg *conn.Config, srv *fakeredis.Server) {
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				<-ctx.Done()
				return srv.Dial(context.WithoutCancel(ctx), network, addr)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				cfg := conn.Config{Dial: srv.Dial}
				hold(&cfg, srv)
				p, err := conn.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					s, err := p.Stream(t.Context())
					if s != nil {
						s.Close()
					}
					done <- err
				}()
				time.Sleep(time.Second)
				start := time.Now()
				p.Close()
				err = <-done
				if took := time.Since(start); !errors.Is(err, conn.ErrClosed) || took != 0 {
					t.Errorf("Stream = %v, %v after Close; want ErrClosed at once", err, took)
				}
				checkDialError(t, err)
				synctest.Wait()
				if n := len(srv.Conns()); n != 0 {
					t.Errorf("%d connections after Close, want none", n)
				}
			})
		})
	}
}

// TestStreamAtTheEndOfADial: a handshake that ends after Close gives no connection.
func TestStreamAtTheEndOfADial(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var p *conn.Pool
		closed := make(chan struct{})
		cfg := conn.Config{Dial: srv.Dial, Trace: &conn.Trace{Dial: func(conn.DialInfo) {
			go func() {
				p.Close()
				close(closed)
			}()
			synctest.Wait()
		}}}
		p, err := conn.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stream(t.Context())
		if s != nil {
			s.Close()
			t.Error("Stream of a closed Pool returned a connection")
		}
		if !errors.Is(err, conn.ErrClosed) {
			t.Errorf("Stream = %v, want ErrClosed", err)
		}
		<-closed
		synctest.Wait()
		if n := len(srv.Conns()); n != 0 {
			t.Errorf("%d connections, want none", n)
		}
	})
}

// TestStreamNotSent: a Write that ends before its first byte leaves the Stream usable.
func TestStreamNotSent(t *testing.T) {
	s := open(t, scripted(t, welcomePing))
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errNoMore)
	err := s.Write(over, resp.Cmd("GET", "k"))
	checkWriteError(t, err, false, context.Canceled)
	if !errors.Is(err, errNoMore) {
		t.Errorf("Write = %v, want its ctx's cause in it", err)
	}
	err = s.Write(t.Context(), resp.Cmd("PING"), resp.Cmd("SET", "k", time.Second))
	checkWriteError(t, err, false, nil)
	checkWriteError(t, s.Write(t.Context(), resp.Command{}), false, nil)
	if err := s.Write(t.Context()); err != nil {
		t.Errorf("Write of nothing = %v", err)
	}
	ping(t, s)
	s.Close()
}

func checkWriteError(t testing.TB, err error, sent bool, want error) {
	t.Helper()
	e, ok := errors.AsType[*conn.Error](err)
	if !ok || e.Sent != sent || e.Op != "write" || errors.Is(err, conn.ErrNotSent) == sent ||
		errors.Is(err, conn.ErrUncertain) != sent {
		t.Errorf("Write = %v, want a *conn.Error with Op write and Sent %t", err, sent)
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("Write = %v, want %v", err, want)
	}
}

// TestStreamStuck: a peer that stops reading delays a writer at most until its ctx or Timeout ends, and costs the
// connection only after a write has begun.
func TestStreamStuck(t *testing.T) {
	stuck := func(t *testing.T) *conn.Stream {
		cfg := scripted(t, func(p *peer) {
			p.welcome()
			p.mute(0)
		})
		cfg.Timeout = 3 * time.Second
		return open(t, cfg)
	}
	write := func(t *testing.T, s *conn.Stream, ctx context.Context, took time.Duration, want error) {
		t.Helper()
		start := time.Now()
		checkWriteError(t, s.Write(ctx, resp.Cmd("PING")), false, want)
		if got := time.Since(start); got != took {
			t.Errorf("Write took %v, want %v", got, took)
		}
	}
	readFails := func(t *testing.T, s *conn.Stream, want error) {
		t.Helper()
		if _, err := s.Read(); !errors.Is(err, want) || !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("Read = %v, want %v and ErrUncertain", err, want)
		}
		write(t, s, t.Context(), 0, want)
	}
	bubble := func(name string, fn func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
	}
	bubble("Timeout", func(t *testing.T) {
		s := stuck(t)
		write(t, s, t.Context(), 3*time.Second, os.ErrDeadlineExceeded)
		readFails(t, s, os.ErrDeadlineExceeded)
	})
	bubble("deadline", func(t *testing.T) {
		s := stuck(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		write(t, s, ctx, time.Second, context.DeadlineExceeded)
		readFails(t, s, context.DeadlineExceeded)
	})
	bubble("cancel", func(t *testing.T) {
		s := stuck(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errNoMore) })
		write(t, s, ctx, time.Second, errNoMore)
		readFails(t, s, context.Canceled)
	})
	bubble("close", func(t *testing.T) {
		s := stuck(t)
		time.AfterFunc(time.Second, func() { s.Close() })
		write(t, s, t.Context(), time.Second, conn.ErrClosed)
		readFails(t, s, conn.ErrClosed)
	})
	bubble("behind another", func(t *testing.T) {
		s := stuck(t)
		var wg sync.WaitGroup
		wg.Go(func() { write(t, s, t.Context(), 3*time.Second, os.ErrDeadlineExceeded) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		write(t, s, ctx, time.Second, context.DeadlineExceeded)
		write(t, s, t.Context(), 2*time.Second, os.ErrDeadlineExceeded)
		wg.Wait()
	})
}

// TestStreamWriteAfterLateCtx: a ctx that ends after its write does not affect the next write.
func TestStreamWriteAfterLateCtx(t *testing.T) {
	s := open(t, scripted(t, func(p *peer) {
		p.welcome()
		for range 200 {
			if p.expect("PING") {
				p.reply("+PONG|")
			}
		}
		p.expectClose()
	}))
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Write(ctx, resp.Cmd("PING")); err != nil {
			t.Fatal(err)
		}
		go cancel()
		if _, err := s.Read(); err != nil {
			t.Fatal(err)
		}
		ping(t, s)
		<-ctx.Done()
	}
	s.Close()
}

// cutConn writes a part of each write after the first and then fails, like a broken connection.
type cutConn struct {
	net.Conn
	writes int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:5])
	return n, io.ErrClosedPipe
}

// TestStreamPartOfWrite: after a partial write the outcome is uncertain, and the connection is closed.
func TestStreamPartOfWrite(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.welcome()
		if got := p.written(); len(got) != 5 {
			t.Errorf("client wrote %q, want 5 bytes", got)
		}
		p.expectClose()
	})
	inner := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := inner(ctx, network, addr)
		return &cutConn{Conn: nc}, err
	}
	s := open(t, cfg)
	checkWriteError(t, s.Write(t.Context(), resp.Cmd("PING")), true, io.ErrClosedPipe)
	checkWriteError(t, s.Write(t.Context(), resp.Cmd("PING")), false, io.ErrClosedPipe)
}

// TestStreamReadFails: an error of Read is final, closes the connection, and contains the cause.
func TestStreamReadFails(t *testing.T) {
	tests := []struct {
		name, sent string
		check      func(err error) bool
	}{
		{"end", "", func(err error) bool { return errors.Is(err, io.EOF) }},
		{"cut", "$5|he", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"not RESP", "hello|", func(err error) bool {
			_, ok := errors.AsType[*resp.SyntaxError](err)
			return ok
		}},
		{"limit", "$100|", func(err error) bool {
			_, ok := errors.AsType[*resp.LimitError](err)
			return ok
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := scripted(t, func(p *peer) {
				p.welcome()
				p.reply(tt.sent)
				if !strings.HasPrefix(tt.name, "end") && tt.name != "cut" {
					p.expectClose()
				}
			})
			cfg.Limits.Bulk = 99
			s := open(t, cfg)
			for range 2 {
				if _, err := s.Read(); !tt.check(err) || !errors.Is(err, conn.ErrUncertain) {
					t.Errorf("Read = %v", err)
				}
			}
			if err := s.Write(t.Context(), resp.Cmd("PING")); !tt.check(err) || !errors.Is(err, conn.ErrNotSent) {
				t.Errorf("Write = %v, want the cause of the Read", err)
			}
			s.Close()
		})
	}
}

func TestStreamClose(t *testing.T) {
	s := open(t, scripted(t, func(p *peer) {
		p.welcome()
		p.expectClose()
	}))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Read(); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("Read = %v, want ErrClosed", err)
		}
	})
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v before Close", err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if err := s.Err(); !errors.Is(err, conn.ErrClosed) {
		t.Errorf("Err = %v, want ErrClosed", err)
	}
	wg.Wait()
	checkWriteError(t, s.Write(t.Context(), resp.Cmd("PING")), false, conn.ErrClosed)
}

// TestTruth sends distinguishable commands under random faults: callers that leave, replies in pieces, a server that
// does not read, lost connections. Every error must tell the truth.
func TestTruth(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fakeredis.New()
				defer srv.Close()
				s := &stress{t: t, srv: srv, rnd: rand.New(rand.NewPCG(seed, 2)), outcome: map[string]string{}}
				s.run()
			})
		})
	}
}

type stress struct {
	t   *testing.T
	srv *fakeredis.Server
	rnd *rand.Rand
	p   *conn.Pool
	wg  sync.WaitGroup

	mu      sync.Mutex
	outcome map[string]string // by command: "answered", "not sent" or "uncertain"
}

func (s *stress) run() {
	s.srv.Buffer(2 << 10)
	s.p = openPool(s.t, conn.Config{Dial: s.srv.Dial, Conns: 2, Timeout: time.Second, MaxAge: 2 * time.Second})
	s.srv.ClearLog()
	for i := range 400 {
		patience := time.Duration(s.rnd.ExpFloat64() * float64(20*time.Millisecond))
		padding := strings.Repeat("x", s.rnd.IntN(10)*s.rnd.IntN(200))
		switch s.rnd.IntN(5) {
		case 0:
			s.wg.Go(func() { s.batch(i, patience, padding) })
		case 1:
			s.wg.Go(func() { s.one(i, time.Hour, padding) })
		default:
			s.wg.Go(func() { s.one(i, patience, padding) })
		}
		s.disturb()
		time.Sleep(time.Duration(s.rnd.IntN(4)) * time.Millisecond)
	}
	s.srv.Stall(false)
	s.wg.Wait()
	s.p.Close()
	s.check()
}

// disturb causes a random fault now and then.
func (s *stress) disturb() {
	switch s.rnd.IntN(60) {
	case 0, 1:
		s.srv.Stall(true)
	case 2, 3, 4, 5:
		s.srv.Stall(false)
	case 6:
		s.srv.KillConns(nil)
	case 7:
		s.srv.ResetConns(nil)
	case 8:
		s.srv.SplitReplies(3, time.Microsecond)
	case 9:
		s.srv.SplitReplies(0, 0)
	case 10:
		s.srv.Latency(time.Duration(s.rnd.IntN(10)) * time.Millisecond)
	}
}

func (s *stress) one(i int, patience time.Duration, padding string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id := fmt.Sprint(i)
	v, err := s.p.Do(ctx, "ECHO", id+padding)
	s.note(id, padding, v, err)
}

func (s *stress) batch(i int, patience time.Duration, padding string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var cmds []resp.Command
	var ids []string
	for j := range 4 {
		ids = append(ids, fmt.Sprint(i, ".", j))
		cmds = append(cmds, resp.Cmd("ECHO", ids[j]+padding))
	}
	values, err := s.p.SendBatch(ctx, cmds)
	for j, v := range values {
		s.note(ids[j], padding, v, nil)
	}
	for _, id := range ids[len(values):] {
		s.note(id, padding, resp.Value{}, err)
	}
}

func (s *stress) note(id, padding string, v resp.Value, err error) {
	outcome := "answered"
	switch {
	case conn.SafeToRetry(err):
		outcome = "not sent"
	case err != nil:
		wantUncertain(s.t, err, conn.ErrUncertain)
		outcome = "uncertain"
	default:
		if got, err := v.Text(); err != nil || got != id+padding {
			s.t.Errorf("ECHO %s = %.20q, %v", id, got, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[id] = outcome
}

// check compares the callers' outcomes with the commands received by the server.
func (s *stress) check() {
	seen := map[string]int{}
	for _, cmd := range s.srv.Log() {
		if cmd.Name == "ECHO" {
			seen[strings.TrimRight(cmd.Args[1], "x")]++
		}
	}
	total := map[string]int{}
	for id, outcome := range s.outcome {
		total[outcome]++
		n := seen[id]
		if n > 1 || n == 0 && outcome == "answered" || n == 1 && outcome == "not sent" {
			s.t.Errorf("ECHO %s is %s, and the server saw it %d times", id, outcome, n)
		}
	}
	if total["answered"] == 0 || total["uncertain"] == 0 || total["not sent"] == 0 {
		s.t.Errorf("outcomes %v, want some of each", total)
	}
}
