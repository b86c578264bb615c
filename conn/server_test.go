package conn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// onServer runs fn with a Pool on each server, in RESP2 and RESP3.
func onServer(t *testing.T, fn func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int)) {
	t.Helper()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		p := openPool(t, s.Config())
		defer p.Close()
		fn(t, s, p, proto)
	})
}

// must returns the reply to a command, and fails the test on an error.
func must(t testing.TB, d doer, args ...any) resp.Value {
	t.Helper()
	v, err := d.Do(context.Background(), args...)
	if err != nil {
		t.Fatalf("Do(%v) = %v", args[0], err)
	}
	return v
}

// fails runs a command and fails the test unless its error has the prefix of target.
func fails(t testing.TB, d doer, target resp.Error, args ...any) string {
	t.Helper()
	_, err := d.Do(context.Background(), args...)
	if !errors.Is(err, target) {
		t.Errorf("Do(%v) = %v, want %v", args[0], err, target)
		return ""
	}
	return err.Error()
}

// with calls fn with a lent connection.
func with(t testing.TB, p *conn.Pool, fn func(c *conn.Conn)) {
	t.Helper()
	if err := p.With(context.Background(), func(c *conn.Conn) error { fn(c); return nil }); err != nil {
		t.Errorf("With = %v", err)
	}
}

// eventually waits until done returns true, and fails the test after a time limit.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(redistest.Patience)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the condition did not become true in time")
		}
	}
}

// TestServerPoolHello: commands that change the connection run on a lent connection, which is not reused. (G01, G02,
// G26, G28)
func TestServerPoolHello(t *testing.T) {
	onServer(t, func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int) {
		with(t, p, func(c *conn.Conn) {
			fails(t, c, resp.ErrNoProto, "HELLO", 4)
			fields := map[string]string{}
			pairs, _ := must(t, c, "HELLO", 3).Pairs()
			for k, v := range pairs {
				name, _ := k.Text()
				fields[name], _ = v.Text()
			}
			if fields["proto"] != "3" {
				t.Errorf("HELLO 3 = %v, want proto 3", fields)
			}
			want(t, c, "OK", "SELECT", 3)
			if s.AtLeast(6, 2) {
				want(t, c, "RESET", "RESET")
			}
			want(t, c, "PONG", "PING")
		})
		with(t, p, func(c *conn.Conn) {
			want(t, c, "OK", "QUIT")
			select {
			case <-c.Done():
			case <-time.After(redistest.Patience):
				t.Error("the server did not close after QUIT")
			}
			if !errors.Is(c.Err(), io.EOF) {
				t.Errorf("Err after QUIT = %v, want EOF", c.Err())
			}
		})
		eventually(t, func() bool { return p.Stats().Open == 0 }) // none of these connections is reused
	})
}

// TestServerPoolTypes: each type of reply, in both protocols. (G03 to G07)
func TestServerPoolTypes(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		if s.AtLeast(7, 0) {
			s = redistest.Start(t, redistest.Options{Binary: s.Binary(), Args: []string{"--enable-debug-command", "yes"}})
		}
		pushed := make(chan resp.Value, 1)
		cfg := s.Config()
		cfg.Protocol = proto
		cfg.OnPush = func(v resp.Value) { pushed <- v }
		p := openPool(t, cfg)
		defer p.Close()
		v := must(t, p, "DEBUG", "PROTOCOL", "attrib")
		if s, err := v.Text(); err != nil || !strings.HasPrefix(s, "Some real reply") {
			t.Errorf("attrib = %q, %v", s, err)
		}
		attrs := 0
		for range v.Attrs() {
			attrs++
		}
		if attrs != proto-2 {
			t.Errorf("%d attributes, want %d", attrs, proto-2)
		}
		if proto == 3 {
			must(t, p, "DEBUG", "PROTOCOL", "push")
			if v := <-pushed; texts(elements(v)) != "server-cpu-usage 42" {
				t.Errorf("pushed %s", texts(elements(v)))
			}
		} else if s.AtLeast(7, 0) { // older servers crash
			fails(t, p, resp.ErrGeneral, "DEBUG", "PROTOCOL", "push")
		}
		want(t, p, "This is a verbatim\nstring", "DEBUG", "PROTOCOL", "verbatim")
		n := 0
		pairs, _ := must(t, p, "DEBUG", "PROTOCOL", "map").Pairs()
		for k, v := range pairs {
			key, err1 := k.Int()
			is, err2 := v.Bool()
			if err1 != nil || err2 != nil || is != (key == 1) {
				t.Errorf("map has %d: %v (%v, %v)", key, is, err1, err2)
			}
			n++
		}
		f, err := must(t, p, "DEBUG", "PROTOCOL", "double").Float()
		if n != 3 || err != nil || math.Abs(f-3.1415) > 0.001 {
			t.Errorf("map of %d pairs, double %v, %v", n, f, err)
		}
		if big, err := must(t, p, "DEBUG", "PROTOCOL", "bignum").Text(); err != nil || len(big) != 37 {
			t.Errorf("bignum = %q, %v", big, err)
		}
	})
}

// TestServerPoolTx: transactions. (G13, G14, G15)
func TestServerPoolTx(t *testing.T) {
	onServer(t, func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int) {
		values, err := p.Tx(t.Context(), cmds("SET k v", "LPUSH k x", "GET k"))
		if got := texts(values); err != nil || got != "OK -WRONGTYPE v" {
			t.Errorf("Tx = %s, %v", got, err)
		}
		_, err = p.Tx(t.Context(), cmds("SET k w", "NOSUCH", "GET k"))
		if !errors.Is(err, resp.ErrExecAbort) || !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Tx with an unknown command = %v, want its error and EXECABORT", err)
		}
		want(t, p, "v", "GET", "k")
		with(t, p, func(c *conn.Conn) {
			want(t, c, "OK", "WATCH", "k")
			want(t, p, "OK", "SET", "k", "other")
			if _, err := c.Tx(t.Context(), cmds("SET k mine")); !errors.Is(err, conn.ErrTxAborted) {
				t.Errorf("Tx after a change = %v, want ErrTxAborted", err)
			}
			values, err := c.Tx(t.Context(), cmds("SET k mine", "GET k"))
			if got := texts(values); err != nil || got != "OK mine" {
				t.Errorf("Tx = %s, %v", got, err)
			}
			want(t, c, "OK", "MULTI")
			want(t, c, "QUEUED", "GET", "k")
			if got := texts(elements(must(t, c, "EXEC"))); got != "mine" {
				t.Errorf("EXEC = %s", got)
			}
		})
	})
}

// TestServerPoolScripts: scripts. (G16 to G23)
func TestServerPoolScripts(t *testing.T) {
	onServer(t, func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int) {
		v := must(t, p, "EVAL", "return {redis.error_reply('OOM x'),'tail',{err='MOVED 1 h:1'},3}", 0)
		if got := texts(elements(v)); got != "-OOM tail -MOVED 3" {
			t.Errorf("errors inside of a reply: %s", got)
		}
		want(t, p, "next", "ECHO", "next")
		fails(t, p, "A", "EVAL", `return {err='A\r\nB'}`, 0)
		want(t, p, "null", "EVAL", "return false", 0)
		if got := texts(elements(must(t, p, "EVAL", "return {1,nil,3}", 0))); got != "1" {
			t.Errorf("an array cut off by a nil: %s", got)
		}
		want(t, p, "3", "EVAL", "return 3.99", 0)
		for _, sha := range []string{strings.Repeat("a", 40), "zz"} {
			fails(t, p, resp.ErrNoScript, "EVALSHA", sha, 0)
		}
		sha, _ := must(t, p, "SCRIPT", "LOAD", "return 7").Text()
		want(t, p, "7", "EVALSHA", strings.ToUpper(sha), 0)
		want(t, p, "OK", "SET", "k", "v")
		_, err := p.Do(t.Context(), "EVAL", "return redis.call('LPUSH','k','x')", 0)
		if e, ok := errors.AsType[resp.Error](err); !ok || e.Class() != "WRONGTYPE" {
			t.Errorf("a script that fails = %v, want class WRONGTYPE", err)
		}
		before := p.Stats().Retries
		fails(t, p, resp.ErrGeneral, "EVAL", "return +", 0)
		if n := p.Stats().Retries; n != before {
			t.Error("a script that does not compile was sent again")
		}
		kinds := must(t, p, "EVAL", "redis.setresp(3); return {{map={a=1}},{double=1.5},{big_number='12'},"+
			"{verbatim_string={format='mkd',string='x'}},{set={a=true}},true}", 0)
		if s.AtLeast(7, 0) && proto == 3 {
			expected := []resp.Kind{resp.Map, resp.Double, resp.BigNumber, resp.VerbatimString, resp.Set, resp.Boolean}
			for i, k := range expected {
				if got := kinds.At(i).Kind(); got != k {
					t.Errorf("element %d is of kind %v, want %v", i, got, k)
				}
			}
		}
	})
}

// TestServerPoolDenied: a forbidden command is not repeated, and the error names the reason. (G24)
func TestServerPoolDenied(t *testing.T) {
	narrow := redistest.User{Name: "narrow", Password: "p", Rules: "~app:* +get +set +publish"}
	opts := redistest.Options{Users: []redistest.User{narrow}}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		cfg := s.Config()
		cfg.Username, cfg.Password = "narrow", "p"
		p := openPool(t, cfg)
		defer p.Close()
		want(t, p, "OK", "SET", "app:k", "v")
		fails(t, p, resp.ErrNoPerm, "DEL", "app:k")
		fails(t, p, resp.ErrNoPerm, "SET", "other:k", "v")
		if s.AtLeast(6, 2) {
			s.Do("ACL", "SETUSER", "narrow", "resetchannels", "&app:*")
			want(t, p, "0", "PUBLISH", "app:c", "v")
			fails(t, p, resp.ErrNoPerm, "PUBLISH", "other:c", "v")
		}
		if n := p.Stats().Retries; n != 0 {
			t.Errorf("%d retries, want none", n)
		}
		cfg.Password = "wrong"
		_, err := conn.Open(t.Context(), cfg)
		wantNotSent(t, err, resp.ErrWrongPass)
	})
}

// TestServerPoolRefuses: the server closes the connection on a command that looks like HTTP, and the error says so.
// (G27, G29)
func TestServerPoolRefuses(t *testing.T) {
	onServer(t, func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int) {
		for _, line := range []string{"CLIENT REPLY OFF", "CLIENT REPLY SKIP", "MONITOR", "SYNC", "SUBSCRIBE c", "BLPOP l 0"} {
			_, err := p.Send(t.Context(), cmds(line)[0])
			wantNotSent(t, err, err)
		}
		want(t, p, "PONG", "PING")
		_, err := p.Do(t.Context(), "POST", "/", "HTTP/1.1")
		wantUncertain(t, err, conn.ErrUncertain)
		if err == nil || !strings.Contains(err.Error(), "closed by the server") && !strings.Contains(err.Error(), "reset") {
			t.Errorf("POST = %v, want it to say that the server closed", err)
		}
		want(t, p, "PONG", "PING")
		v := must(t, p, "ROLE") // G30
		if role, _ := v.At(0).Text(); role != "master" || v.Len() != 3 {
			t.Errorf("ROLE = %s of %d", role, v.Len())
		}
	})
}

// TestServerPoolBlocking: one caller waits for an element, and another caller leaves.
func TestServerPoolBlocking(t *testing.T) {
	onServer(t, func(t *testing.T, s *redistest.Server, p *conn.Pool, proto int) {
		var wg sync.WaitGroup
		wg.Go(func() {
			with(t, p, func(c *conn.Conn) {
				if v, err := c.Do(t.Context(), "BLPOP", "list", 0); err != nil || texts(elements(v)) != "list x" {
					t.Errorf("BLPOP = %s, %v", texts(elements(v)), err)
				}
			})
		})
		want(t, p, "1", "RPUSH", "list", "x")
		wg.Wait()
		with(t, p, func(c *conn.Conn) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := make(chan error, 1)
			go func() {
				_, err := c.Do(ctx, "BLPOP", "list", 0)
				left <- err
			}()
			eventually(t, func() bool { return strings.Contains(text(t, s.Do("INFO", "clients")), "blocked_clients:1") })
			cancel()
			wantUncertain(t, <-left, context.Canceled)
		})
		// The server has noticed the closed connection and keeps the next element.
		eventually(t, func() bool { return strings.Contains(text(t, s.Do("INFO", "clients")), "blocked_clients:0") })
		want(t, p, "1", "RPUSH", "list", "y")
		want(t, p, "1", "LLEN", "list")
	})
}

// TestServerPoolGone: B20 on a real port, and a server that returns.
func TestServerPoolGone(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		p := openPool(t, s.Config())
		defer p.Close()
		s.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := p.Do(ctx, "PING")
		for errors.Is(err, conn.ErrUncertain) { // sent before readLoop saw the end
			_, err = p.Do(ctx, "PING")
		}
		wantNotSent(t, err, err)
		if n := p.Stats().Dials; n > 9 {
			t.Errorf("%d dials, want 8 at most after the first", n)
		}
		s.Restart()
		want(t, p, "PONG", "PING")
	})
}

// TestServerPoolIdleTimeout: the server closes an idle connection, and the next command does not notice. (B39)
func TestServerPoolIdleTimeout(t *testing.T) {
	opts := redistest.Options{Args: []string{"--timeout", "1"}}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		c := dialConn(t, s.Config())
		defer c.Close()
		p := openPool(t, s.Config())
		defer p.Close()
		<-c.Done() // idle for as long
		eventually(t, func() bool { return p.Stats().Shared == 0 })
		s.Do("CONFIG", "SET", "timeout", 0) // or a slow machine loses the next connection before its first command
		want(t, p, "PONG", "PING")
		if n := p.Stats().Dials; n != 2 {
			t.Errorf("%d dials, want 2", n)
		}
	})
}

// TestServerPoolConcurrent: many callers share connections, some leave, and each caller gets its own answers.
func TestServerPoolConcurrent(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		cfg := s.Config()
		cfg.Conns = 2
		p := openPool(t, cfg)
		defer p.Close()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j := range 100 {
					n := int64(i*1000 + j)
					if j%10 == 9 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(j)*time.Microsecond)
						p.Do(ctx, "ECHO", -n)
						cancel()
					}
					v, err := p.Do(t.Context(), "ECHO", n)
					if got, _ := v.Int(); err != nil || got != n {
						t.Errorf("ECHO %d = %d, %v", n, got, err)
					}
				}
			})
		}
		wg.Wait()
		if n := p.Stats(); n.Dials != 2 || n.Lost != 0 {
			t.Errorf("Stats = %+v, want 2 connections, none lost", n)
		}
	})
}

func TestServerTarget(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		cfg := s.Config()
		cfg.DB = 3
		pool := openPool(t, cfg)
		defer pool.Close()
		if got, want := pool.Target(), "tcp "+s.Addr()+"/3"; got != want {
			t.Errorf("Target() = %q, want %q", got, want)
		}
		cfg.Dial = new(net.Dialer).DialContext
		own := openPool(t, cfg)
		defer own.Close()
		if got := own.Target(); got != "" {
			t.Errorf("Target() with a Dial = %q", got)
		}
	})
}

// Twemproxy closes the connection of a client that sends HELLO or CLIENT.
func TestServerTwemproxy(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		addr := redistest.StartTwemproxy(t, s)
		for _, cfg := range []conn.Config{{}, {Protocol: 2}, {NoIdentity: true}, {Protocol: 2, NoIdentity: true}, {ClientName: "me"}} {
			t.Run(fmt.Sprintf("protocol %d, no identity %v", cfg.Protocol, cfg.NoIdentity), func(t *testing.T) {
				var dials []conn.DialInfo
				cfg.Addr = addr
				cfg.Trace = &conn.Trace{Dial: func(i conn.DialInfo) { dials = append(dials, i) }}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				p, err := conn.Open(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if len(dials) != 1 || dials[0].Err != nil || dials[0].Protocol != 2 {
					t.Errorf("dials: %+v, want one, in RESP2", dials)
				}
				want(t, p, "OK", "SET", "key", "value")
				want(t, p, "PONG", "PING") // like the Pool's own PINGs
				want(t, p, "value", "GET", "key")
				values, err := p.SendBatch(ctx, cmds("SET key 1", "INCR key", "GET key"))
				if got := texts(values); err != nil || got != "OK 2 2" {
					t.Errorf("SendBatch = %s, %v", got, err)
				}
				if n := p.Stats().Lost; n != 0 {
					t.Errorf("%d connections lost", n)
				}
				p.Close()
			})
		}
	})
}

// TestServerLargeValues: values around the length from which they are written and read in their own memory arrive whole,
// by every way to send them, among small commands of other callers.
func TestServerLargeValues(t *testing.T) {
	sizes := []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 100_000, 1 << 20, 3<<20 + 7}
	for _, opts := range []redistest.Options{{}, {Unix: true}, {TLS: true}} {
		redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
			p := openPool(t, s.Config())
			defer p.Close()
			var callers sync.WaitGroup
			for i, size := range sizes {
				callers.Go(func() { largeValues(t, p, fmt.Sprint("large:", i), size) })
				callers.Go(func() {
					for n := range 200 {
						want(t, p, fmt.Sprint(n), "ECHO", fmt.Sprint(n))
					}
				})
			}
			callers.Wait()
		})
	}
}

func largeValues(t *testing.T, p *conn.Pool, key string, size int) {
	ctx := t.Context()
	value := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
	for way, set := range []func(v []byte) (resp.Value, error){
		func(v []byte) (resp.Value, error) { return p.Do(ctx, "SET", key, v) },
		func(v []byte) (resp.Value, error) { return p.Do(ctx, "SET", key, string(v), "PX", 100_000) },
		func(v []byte) (resp.Value, error) { return p.Send(ctx, resp.Cmd("SET", key, v)) },
		func(v []byte) (resp.Value, error) {
			replies, err := p.SendBatch(ctx, []resp.Command{resp.Cmd("PING"), resp.Cmd("SET", key, v)})
			return replies[len(replies)-1], err
		},
		func(v []byte) (reply resp.Value, err error) {
			err = p.With(ctx, func(c *conn.Conn) error {
				reply, err = c.Do(ctx, "MSET", key, v, key+":too", string(v))
				return err
			})
			return reply, err
		},
	} {
		value[0] = byte('a' + way)
		reply, err := set(value)
		if text, _ := reply.Text(); err != nil || text != "OK" {
			t.Errorf("%d bytes, way %d: %v, %v", size, way, reply, err)
			return
		}
		got, err := p.Do(ctx, "GET", key)
		if text, _ := got.Text(); err != nil || text != string(value) {
			t.Errorf("%d bytes, way %d: GET has %d bytes, error %v; the same: %v", size, way, len(text), err, text == string(value))
		}
	}
	got, err := p.Do(ctx, "MGET", key, "none", key+":too")
	if err != nil || got.Len() != 3 {
		t.Errorf("MGET = %v, %v", got, err)
		return
	}
	for _, i := range []int{0, 2} {
		if text, _ := got.At(i).Text(); text != string(value) {
			t.Errorf("%d bytes: element %d of MGET is another: %.10s", size, i, strings.TrimRight(text, "0"))
		}
	}
}
