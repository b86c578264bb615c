package fakeredis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func TestActions(t *testing.T) {
	tests := map[string]struct {
		act   fakeredis.Action
		reply string // of INCR n and what follows it
		after time.Duration
		ran   string // value of n afterwards
		end   error
	}{
		"run":            {act: fakeredis.Run(), reply: ":1\r\n", ran: "1"},
		"zero":           {reply: ":1\r\n", ran: "1"},
		"reply":          {act: fakeredis.Reply("-LOADING busy\r\n"), reply: "-LOADING busy\r\n"},
		"drop":           {act: fakeredis.Drop(), ran: "1"},
		"swallow":        {act: fakeredis.Swallow()},
		"close":          {act: fakeredis.Close(), end: io.EOF},
		"run then close": {act: fakeredis.RunThenClose(), ran: "1", end: io.EOF},
		"answer, close":  {act: fakeredis.Run().ThenClose(), reply: ":1\r\n", ran: "1", end: io.EOF},
		"reset":          {act: fakeredis.Run().ThenReset(), ran: "1", end: syscall.ECONNRESET},
		"delay":          {act: fakeredis.Delay(time.Second, fakeredis.Run()), reply: ":1\r\n", after: time.Second, ran: "1"},
		"late":           {act: fakeredis.Run().Late(time.Second), reply: ":1\r\n", after: time.Second, ran: "1"},
		"before, after":  {act: fakeredis.Run().Before("+a\r\n").After("+b\r\n"), reply: "+a\r\n:1\r\n+b\r\n", ran: "1"},
		"bytes":          {act: fakeredis.Run().Split(time.Second), reply: ":1\r\n", after: 3 * time.Second, ran: "1"},
		"pieces":         {act: fakeredis.Run().Split(time.Second, 1, 99), reply: ":1\r\n", after: time.Second, ran: "1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if cmd.Name == "INCR" {
						return test.act
					}
					return fakeredis.Run()
				})
				c := dial(t, srv)
				start := time.Now()
				c.send("INCR", "n")
				_ = c.nc.SetReadDeadline(start.Add(time.Minute))
				buf := make([]byte, len(test.reply))
				if _, err := io.ReadFull(c.r, buf); err != nil || string(buf) != test.reply {
					t.Errorf("read %q, %v, want %q", buf, err, test.reply)
				}
				if took := time.Since(start); took != test.after {
					t.Errorf("took %v, want %v", took, test.after)
				}
				synctest.Wait()
				if test.end != nil {
					if err := c.ended(); !errors.Is(err, test.end) {
						t.Errorf("end = %v, want %v", err, test.end)
					}
				}
				got, _ := srv.Do("GET", "n").(string)
				if got != test.ran {
					t.Errorf("n = %q, want %q", got, test.ran)
				}
			})
		})
	}
}

func TestDelayedCommandOutlivesItsClient(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return fakeredis.Delay(time.Second, fakeredis.Run()) })
		c := dial(t, srv)
		c.send("SET", "k", "v")
		synctest.Wait()
		_ = c.nc.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := srv.Do("GET", "k"); got != "v" {
			t.Errorf("k = %v, want v", got)
		}
	})
}

func TestKillStopsDelayedCommand(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return fakeredis.Delay(time.Second, fakeredis.Run()) })
		c := dial(t, srv)
		c.send("SET", "k", "v")
		synctest.Wait()
		srv.KillConns(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := srv.Do("GET", "k"); got != nil {
			t.Errorf("k = %v, want nil", got)
		}
	})
}

func TestWaitForGate(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		gate := make(chan struct{})
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INCR" {
				return fakeredis.Wait(gate, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		c := dial(t, srv)
		c.send("INCR", "n")
		c.send("GET", "n")
		synctest.Wait()
		dial(t, srv).expect("$-1\r\n", "GET", "n")
		close(gate)
		if first, second := c.read(), c.read(); first != ":1\r\n" || second != "$1\r\n1\r\n" {
			t.Errorf("replies %q and %q", first, second)
		}
	})
}

func TestMute(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c, sub := dial(t, srv), dial(t, srv)
		sub.do("SUBSCRIBE", "news")
		srv.Mute(true)
		c.send("INCR", "n")
		srv.Do("PUBLISH", "news", "lost")
		synctest.Wait()
		other := dial(t, srv)
		other.send("PING")
		if _, err := other.nc.Write([]byte("*x\r\n\x16\x03\x01\n")); err != nil {
			t.Error(err)
		}
		_ = other.nc.SetReadDeadline(time.Now().Add(time.Minute))
		if err := other.ended(); err == io.EOF {
			t.Errorf("read = %v, want a deadline", err)
		}
		srv.Mute(false)
		c.expect(":1\r\n", "INCR", "n")
		sub.expect("*2\r\n$4\r\npong\r\n$0\r\n\r\n", "PING")
		if got := srv.Count("INCR"); got != 1 {
			t.Errorf("Count = %d, want 1", got)
		}
	})
}

func TestStallRunsLater(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.do("PING")
		srv.Stall(true)
		c.send("INCR", "n")
		time.Sleep(time.Hour)
		if got := srv.Do("GET", "n"); got != nil {
			t.Errorf("n = %v while stalled", got)
		}
		srv.Stall(false)
		if got := c.read(); got != ":1\r\n" {
			t.Errorf("reply %q", got)
		}
	})
}

func TestRefuseAndUnreachable(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Refuse(true)
		if _, err := srv.Dial(t.Context(), "tcp", "a"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial = %v, want connection refused", err)
		}
		srv.Refuse(false)
		srv.Unreachable(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := srv.Dial(ctx, "tcp", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial = %v, want a deadline", err)
		}
		srv.Unreachable(false)
		dial(t, srv).expect("+PONG\r\n", "PING")
		if got := srv.Dials(); got != 3 {
			t.Errorf("Dials = %d, want 3", got)
		}
	})
}

func TestMaxClients(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.MaxClients(1)
		dial(t, srv)
		c := dial(t, srv)
		if got := c.read(); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("read %q", got)
		}
		if err := c.ended(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
	})
}

func TestPush(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.expect(":1\r\n", "CLIENT", "ID")
		if !srv.Push(1, "+unasked\r\n") || srv.Push(2, "+nobody\r\n") {
			t.Error("Push: want true for connection 1 and false for 2")
		}
		if got := c.read(); got != "+unasked\r\n" {
			t.Errorf("read %q", got)
		}
	})
}

func TestUsers(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.User("default", "secret")
		srv.User("bob", "hidden")
		c := dial(t, srv)
		c.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
		if got := c.do("HELLO", "3"); got[:7] != "-NOAUTH" {
			t.Errorf("HELLO = %q", got)
		}
		c.expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n", "HELLO", "3", "AUTH", "bob", "wrong")
		c.expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH", "wrong")
		c.expect("+OK\r\n", "AUTH", "secret")
		c.expect("$-1\r\n", "GET", "k")
		c = dial(t, srv)
		if got := c.do("HELLO", "3", "AUTH", "bob", "hidden", "SETNAME", "me"); got[:2] != "%7" {
			t.Errorf("HELLO = %q", got)
		}
		want := fakeredis.Conn{ID: 2, Name: "me", Protocol: 3}
		if list := srv.Conns(); !slices.Contains(list, want) {
			t.Errorf("Conns = %v, want %v among them", list, want)
		}
	})
}

func TestRestart(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Script("return 1", func(*fakeredis.Call) any { return 1 })
		c := dial(t, srv)
		c.do("SET", "k", "v")
		c.do("SCRIPT", "LOAD", "return 1")
		c.do("SUBSCRIBE", "news")
		srv.Restart()
		if err := c.ended(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
		c = dial(t, srv)
		c.expect("$-1\r\n", "GET", "k")
		c.expect("-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA", fakeredis.Digest("return 1"), "0")
		c.expect(":0\r\n", "PUBLISH", "news", "x")
		if got := srv.Subscribers("news"); got != 0 {
			t.Errorf("Subscribers = %d, want 0", got)
		}
		c.expect(":1\r\n", "EVAL", "return 1", "0")
	})
}

func TestLog(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.do("set", "k", "v")
		c.do("GET", "k")
		srv.Do("SET", "k", "unlogged")
		if got, want := srv.Commands(), []string{"set k v", "GET k"}; !slices.Equal(got, want) {
			t.Errorf("Commands = %q, want %q", got, want)
		}
		cmd := srv.Log()[0]
		if cmd.Conn != 1 || cmd.Name != "SET" || cmd.N != 1 {
			t.Errorf("Log[0] = %+v", cmd)
		}
		srv.ClearLog()
		if srv.Count("SET") != 0 || len(srv.Log()) != 0 {
			t.Error("the log is not empty after ClearLog")
		}
	})
}

func TestAwait(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		go func() {
			time.Sleep(time.Second)
			c.send("SET", "k", "v")
		}()
		if err := srv.Await(t.Context(), func() bool { return srv.Count("SET") == 1 }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := srv.Await(ctx, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await = %v, want a deadline", err)
		}
	})
}

func TestPlainPeerOfTLS(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.TLS(&tls.Config{})
		c := dial(t, srv)
		c.send("PING")
		if err := c.ended(); err == nil {
			t.Error("a TLS server answered a plain PING")
		}
		srv.Stall(true)
		nc, err := srv.Dial(t.Context(), "tcp", "mute:6379")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		secure := tls.Client(nc, &tls.Config{ServerName: "mute"})
		defer func() { _ = secure.Close() }()
		if err := secure.HandshakeContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("handshake = %v, want a deadline", err)
		}
	})
}
