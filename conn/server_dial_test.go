package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// ask sends one command over a Stream without other commands in flight.
func ask(t testing.TB, s *conn.Stream, args ...any) resp.Value {
	t.Helper()
	if err := s.Write(t.Context(), resp.Cmd(args...)); err != nil {
		t.Fatalf("Write = %v", err)
	}
	v, err := s.Read()
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	return v
}

func text(t testing.TB, v resp.Value) string {
	t.Helper()
	s, err := v.Text()
	if err != nil {
		t.Fatalf("Text = %v", err)
	}
	return s
}

// TestServerIdentity: CLIENT LIST shows the identity sent in the handshake. (G25 for servers without SETINFO)
func TestServerIdentity(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		cfg := s.Config()
		cfg.ClientName, cfg.DB = "worker-1", 3
		st := open(t, cfg)
		if st.Protocol() != proto || st.Addr() != s.Addr() {
			t.Errorf("Protocol, Addr = %d, %q; want %d, %q", st.Protocol(), st.Addr(), proto, s.Addr())
		}
		id, err := ask(t, st, "CLIENT", "ID").Int()
		if err != nil {
			t.Fatal(err)
		}
		var line string
		for l := range strings.Lines(text(t, s.Do("CLIENT", "LIST"))) {
			if strings.HasPrefix(l, fmt.Sprintf("id=%d ", id)) {
				line = l
			}
		}
		want := []string{" name=worker-1 ", " db=3 "}
		if s.AtLeast(7, 2) {
			want = append(want, " lib-name=lockwire ", " lib-ver=", fmt.Sprintf(" resp=%d ", proto))
		}
		if strings.Contains(line, " lib-ver= ") {
			t.Errorf("CLIENT LIST has %q without a version", line)
		}
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("CLIENT LIST has %q, want %q in it", line, w)
			}
		}
		ping(t, st)
	})
}

// TestServerHello: G01 and G02.
func TestServerHello(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		st := open(t, s.Config())
		if st.Protocol() != 3 {
			t.Errorf("Protocol() = %d, want 3 by default", st.Protocol())
		}
		if err := ask(t, st, "HELLO", 4).Err(); !errors.Is(err, resp.ErrNoProto) {
			t.Errorf("HELLO 4 = %v, want NOPROTO", err)
		}
		v := ask(t, st, "HELLO", 3)
		if v.Kind() != resp.Map {
			t.Fatalf("HELLO 3 = %v, want a map", v.Kind())
		}
		fields := map[string]resp.Value{}
		pairs, err := v.Pairs()
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range pairs {
			fields[text(t, k)] = v
		}
		if n, err := fields["proto"].Int(); n != 3 || err != nil {
			t.Errorf("proto = %d, %v; want 3", n, err)
		}
		if len(fields) < 7 || fields["modules"].IsNull() || fields["role"].IsNull() {
			t.Errorf("HELLO 3 has %d fields: %v", len(fields), fields)
		}
	})
}

// TestServerWithoutHello: a server without HELLO accepts the client by AUTH. (B24)
func TestServerWithoutHello(t *testing.T) {
	al := redistest.User{Name: "al", Password: secret, Rules: "~* +@all"}
	noHello := []string{"--rename-command", "HELLO", ""}
	check := func(t *testing.T, s *redistest.Server, users ...string) {
		for _, user := range users {
			cfg := conn.Config{Addr: s.Addr(), Username: user, Password: secret, DB: 2, ClientName: "old"}
			st := open(t, cfg)
			if st.Protocol() != 2 {
				t.Errorf("Protocol() = %d, want 2", st.Protocol())
			}
			if name := text(t, ask(t, st, "CLIENT", "GETNAME")); name != "old" {
				t.Errorf("CLIENT GETNAME = %q, want %q", name, "old")
			}
			cfg.Password += "x"
			if err := refused(t, t.Context(), cfg); !errors.Is(err, resp.ErrWrongPass) {
				t.Errorf("DialStream with a wrong password = %v, want WRONGPASS", err)
			}
			cfg.Password, cfg.Protocol = secret, 3
			refused(t, t.Context(), cfg)
		}
	}
	opts := redistest.Options{Users: []redistest.User{al}, Args: noHello}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		check(t, s, "al")
		open(t, conn.Config{Addr: s.Addr()})
	})
	opts.Password = secret
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		if s.Binary().Product == "valkey" && s.AtLeast(9, 0) {
			return // the server reports unknown commands only to authenticated clients
		}
		check(t, s, "al", "", "default")
	})
}

// countWrites makes a Config's dials count the writes on their connections.
func countWrites(cfg *conn.Config, n *atomic.Int64) {
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &countingConn{Conn: nc, writes: n}, err
	}
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestServerRefusesUser: a rejected user gets the reason after one write, without a second attempt in RESP2. (G24,
// B23)
func TestServerRefusesUser(t *testing.T) {
	opts := redistest.Options{
		Password: secret,
		Users: []redistest.User{
			{Name: "al", Password: secret, Rules: "~app:* +@all"},
			{Name: "min", Password: secret, Rules: "~* +get"},
			{Name: "open", Rules: "~* +@all"},
		},
	}
	tests := []struct {
		user, password string
		db             int
		want           error // nil for success
	}{
		{"", secret, 0, nil},
		{"al", secret, 1, nil},
		{"min", secret, 0, nil},
		{"open", "", 0, nil},
		{"", "", 0, resp.ErrNoAuth},
		{"", secret + "x", 0, resp.ErrWrongPass},
		{"al", "", 0, resp.ErrWrongPass},
		{"nobody", secret, 0, resp.ErrWrongPass},
		{"min", secret, 1, resp.ErrNoPerm},
	}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		for _, proto := range []int{0, 2, 3} {
			for _, tt := range tests {
				var writes atomic.Int64
				cfg := conn.Config{
					Addr: s.Addr(), Username: tt.user, Password: tt.password, DB: tt.db, Protocol: proto,
				}
				countWrites(&cfg, &writes)
				st, err := conn.DialStream(t.Context(), cfg)
				if err == nil {
					st.Close()
				} else {
					checkDialError(t, err)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("%q with RESP%d: DialStream = %v, want %v", tt.user, proto, err, tt.want)
				}
				if n := writes.Load(); n != 1 {
					t.Errorf("%q with RESP%d: %d writes, want 1", tt.user, proto, n)
				}
			}
		}
		denied := [][]any{{"GET", "other"}}
		if s.AtLeast(6, 2) {
			s.Do("ACL", "SETUSER", "al", "resetchannels", "&app:*")
			denied = append(denied, []any{"PUBLISH", "other", "x"})
		}
		st := open(t, conn.Config{Addr: s.Addr(), Username: "al", Password: secret})
		for _, args := range denied {
			if err := ask(t, st, args...).Err(); !errors.Is(err, resp.ErrNoPerm) {
				t.Errorf("%v = %v, want NOPERM", args, err)
			}
		}
		st = open(t, conn.Config{Addr: s.Addr(), Username: "min", Password: secret})
		if err := ask(t, st, "SET", "k", "v").Err(); !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("SET = %v, want NOPERM", err)
		}
	})
}

// TestServerFull: the reason reaches the caller, sent before or after the handshake's write. (B40)
func TestServerFull(t *testing.T) {
	opts := redistest.Options{Args: []string{"--maxclients", "4"}}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		var err error
		for range 5 {
			var st *conn.Stream
			if st, err = conn.DialStream(t.Context(), s.Config()); err != nil {
				break
			}
			defer st.Close()
		}
		if err == nil {
			t.Fatal("5 connections to a server for 4")
		}
		checkDialError(t, err)
		if e, _ := errors.AsType[resp.Error](err); e != "ERR max number of clients reached" {
			t.Errorf("DialStream = %v, want that the number of clients is reached", err)
		}
	})
}

// TestServerTLS: certificates on both sides, and the errors if one side has none. (B22)
func TestServerTLS(t *testing.T) {
	opts := redistest.Options{TLSClientAuth: true, Password: secret}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		ping(t, open(t, s.Config()))

		anonymous := s.Config()
		anonymous.TLS = &tls.Config{RootCAs: anonymous.TLS.RootCAs}
		refused(t, t.Context(), anonymous)

		stranger := s.Config()
		stranger.TLS.RootCAs = nil
		if err := refused(t, t.Context(), stranger); !isCertificateError(err) {
			t.Errorf("DialStream without the authority = %v, want the certificate refused", err)
		}

		misnamed := s.Config()
		misnamed.TLS.ServerName = "db.example"
		if err := refused(t, t.Context(), misnamed); !isCertificateError(err) {
			t.Errorf("DialStream to another name = %v, want the certificate refused", err)
		}

		plain := s.Config()
		plain.TLS = nil
		if err := refused(t, t.Context(), plain); !strings.Contains(err.Error(), "TLS") {
			t.Errorf("plain DialStream = %v, want a hint at TLS", err)
		}
	})
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		cfg := s.Config()
		cfg.TLS = &tls.Config{}
		cfg.DialTimeout = time.Hour // the server waits for the end of a line and stays silent
		if err := refused(t, t.Context(), cfg); !strings.Contains(err.Error(), "not expect TLS") {
			t.Errorf("TLS to a plain server = %v, want a hint", err)
		}
	})
}

func TestServerUnix(t *testing.T) {
	opts := redistest.Options{Unix: true, Password: secret}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		ping(t, open(t, s.Config()))
		cfg, err := conn.ParseURL(s.URL() + "?db=1")
		if err != nil {
			t.Fatal(err)
		}
		ping(t, open(t, cfg))
	})
}

// TestServerStreamPubSub: both protocols show the same messages in the order of the server, as pushes or as arrays.
// (G08 to G12)
func TestServerStreamPubSub(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		st := open(t, s.Config())
		next := func(want ...string) {
			t.Helper()
			v, err := st.Read()
			if err != nil {
				t.Fatalf("Read = %v", err)
			}
			var got []string
			for e := range v.All() {
				if e.IsNull() {
					got = append(got, "null")
				} else {
					got = append(got, text(t, e))
				}
			}
			if v.Len() == 0 {
				got = []string{text(t, v)}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("Read = %q, want %q", got, want)
			}
		}
		write := func(args ...any) {
			t.Helper()
			if err := st.Write(t.Context(), resp.Cmd(args...)); err != nil {
				t.Fatal(err)
			}
		}
		pong := []string{"PONG"}
		if proto == 2 {
			pong = []string{"pong", ""}
		}
		write("SUBSCRIBE", "a", "b")
		next("subscribe", "a", "1")
		next("subscribe", "b", "2")
		write("PING")
		next(pong...)
		if proto == 2 {
			if err := ask(t, st, "GET", "key").Err(); err == nil || !strings.Contains(err.Error(), "SUBSCRIBE") {
				t.Errorf("GET while subscribed = %v, want it refused", err)
			}
		}
		s.Do("PUBLISH", "b", "hello")
		write("PING")
		next("message", "b", "hello")
		next(pong...)
		write("UNSUBSCRIBE", "a", "b")
		next("unsubscribe", "a", "1")
		next("unsubscribe", "b", "0")
		ping(t, st)
		if s.Binary().Product == "redis" { // Valkey 8.0 replies with an error
			write("UNSUBSCRIBE")
			next("unsubscribe", "null", "0")
		}
	})
}

// TestServerGone: a stopped server costs at most the time limit, and a dead server ends the Stream.
func TestServerGone(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		st := open(t, s.Config())
		s.Pause()
		cfg := s.Config()
		cfg.DialTimeout = 100 * time.Millisecond
		if err := refused(t, t.Context(), cfg); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("DialStream to a server that stands still = %v, want DeadlineExceeded", err)
		}
		s.Continue()
		ping(t, st)
		s.Kill()
		if _, err := st.Read(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read after the server died = %v, want EOF", err)
		}
		if err := refused(t, t.Context(), s.Config()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("DialStream to no server = %v, want ECONNREFUSED", err)
		}
	})
}

// TestFailovers loses masters under load. Calls end with a reply or as uncertain; commands not sent reach the new
// master. It runs several rounds with LOCKWIRE_TORTURE=1, and one round with -short.
func TestFailovers(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{Password: secret}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		cfg := s.Config()
		cfg.Conns, cfg.Retry = 2, conn.Retry{Attempts: 1 << 20, Budget: -1}
		cfg.Trace = &conn.Trace{Switch: func(info conn.SwitchInfo) { t.Logf("from %s to %s", info.From, info.To) }}
		p := openPool(t, cfg)
		defer p.Close()
		load := startLoad(t, p, 16)
		defer load.stop()
		rounds := 1
		if os.Getenv("LOCKWIRE_TORTURE") == "1" {
			rounds = 5
		}
		for range rounds {
			for _, f := range redistest.Failovers {
				old := s.Master()
				f.Begin(s, old)
				s.AwaitMaster(old)
				begun := time.Now()
				awaitMaster(t, p, s)
				t.Logf("%s: on the new master %v after the sentinels agreed", f.Name, time.Since(begun))
				f.End(s, old)
				s.AwaitHealthy()
			}
		}
		load.stop()
		t.Logf("%d replies, %d uncertain, %+v", load.replies.Load(), load.uncertain.Load(), p.Stats())
		if n := p.Stats().Switches; n < uint64(rounds*len(redistest.Failovers)) {
			t.Errorf("%d switches, want %d", n, rounds*len(redistest.Failovers))
		}
	})
}

// awaitMaster returns when all connections of the pool lead to the current master, which on a busy machine may have
// changed again.
func awaitMaster(t testing.TB, p *conn.Pool, s *redistest.Sentinels) {
	t.Helper()
	eventually(t, func() bool {
		v, err := s.Master().Try("INFO", "server")
		if err != nil {
			return false
		}
		id := runID(t, v)
		for range 8 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			v, err := p.Do(ctx, "INFO", "server")
			cancel()
			if err != nil || runID(t, v) != id {
				return false
			}
		}
		return true
	})
}

// load is a group of callers without pauses.
type load struct {
	replies, uncertain atomic.Int64
	cancel             context.CancelFunc
	callers            sync.WaitGroup
}

func startLoad(t *testing.T, p *conn.Pool, n int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	x := &load{cancel: cancel}
	for range n {
		x.callers.Go(func() {
			for ctx.Err() == nil {
				switch _, err := p.Do(ctx, "INCR", "n"); {
				case err == nil:
					x.replies.Add(1)
				case errors.Is(err, conn.ErrUncertain):
					x.uncertain.Add(1)
				case ctx.Err() == nil:
					t.Errorf("INCR = %v", err)
					return
				}
			}
		})
	}
	return x
}

func (x *load) stop() {
	x.cancel()
	x.callers.Wait()
}

// runID returns the run id of a server process.
func runID(t testing.TB, info resp.Value) string {
	t.Helper()
	text, err := info.Text()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(text, "\r\n")
	return id
}
