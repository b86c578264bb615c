package redistest_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
)

const patience = redistest.Patience

// dial connects as a client would, to the address the server says.
func dial(t *testing.T, s *redistest.Server) net.Conn {
	t.Helper()
	nc, err := net.Dial(s.Network(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if cfg := s.TLSConfig(); cfg != nil {
		cfg.ServerName = "localhost"
		nc = tls.Client(nc, cfg)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return nc
}

// say sends a line and returns the first line of the answer.
func say(t *testing.T, nc net.Conn, line string) string {
	t.Helper()
	if _, err := io.WriteString(nc, line+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

func text(t *testing.T, s *redistest.Server, args ...any) string {
	t.Helper()
	got, err := s.Do(args...).Text()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRun(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		if got := say(t, dial(t, s), "PING"); got != "+PONG" {
			t.Errorf("PING = %q", got)
		}
		info := text(t, s, "INFO", "server")
		if want := s.Binary().Product + "_version:" + s.Binary().Version; !strings.Contains(info, want) {
			t.Errorf("INFO has no %q:\n%s", want, info)
		}
		if !strings.HasSuffix(t.Name(), s.Binary().String()) {
			t.Errorf("subtest is named %q, server %q", t.Name(), s.Binary())
		}
		if got := text(t, s, "DEBUG", "SLEEP", "0"); got != "OK" {
			t.Errorf("DEBUG SLEEP 0 = %q", got)
		}
		if got := s.Dump(); len(got) > 0 {
			t.Errorf("a new server has keys: %q", got)
		}
	})
}

func TestRunProtocols(t *testing.T) {
	seen := map[int]bool{}
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		seen[proto] = true
		if got := s.Config().Protocol; got != proto {
			t.Errorf("Config().Protocol = %d, want %d", got, proto)
		}
	})
	if !seen[2] || !seen[3] {
		t.Errorf("protocols run: %v", seen)
	}
}

func TestUnix(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{Unix: true}, func(t *testing.T, s *redistest.Server) {
		if got := say(t, dial(t, s), "PING"); got != "+PONG" || s.Network() != "unix" {
			t.Errorf("PING over %s = %q", s.Network(), got)
		}
		if want := "unix://" + s.Addr(); s.URL() != want {
			t.Errorf("URL() = %q, want %q", s.URL(), want)
		}
	})
}

func TestTLS(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{TLS: true}, func(t *testing.T, s *redistest.Server) {
		if got := say(t, dial(t, s), "PING"); got != "+PONG" {
			t.Errorf("PING = %q", got)
		}
		if _, err := tls.Dial("tcp", s.Addr(), &tls.Config{}); err == nil {
			t.Error("a client that does not know the authority has connected")
		}
		if want := "rediss://" + s.Addr(); s.URL() != want {
			t.Errorf("URL() = %q, want %q", s.URL(), want)
		}
	})
}

func TestTLSClientAuth(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{TLSClientAuth: true}, func(t *testing.T, s *redistest.Server) {
		if got := say(t, dial(t, s), "PING"); got != "+PONG" {
			t.Errorf("PING with a certificate = %q", got)
		}
		nameless := s.TLSConfig()
		nameless.Certificates = nil
		nc, err := tls.Dial("tcp", s.Addr(), nameless)
		if err != nil {
			return
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		io.WriteString(nc, "PING\r\n")
		if n, err := nc.Read(make([]byte, 16)); err == nil {
			t.Errorf("an answer of %d bytes without a certificate", n)
		}
	})
}

func TestUsers(t *testing.T) {
	opts := redistest.Options{
		Password: `two words "quoted"`,
		Users:    []redistest.User{{Name: "reader", Password: "secret", Rules: "~app:* +get"}},
	}
	redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
		nc := dial(t, s)
		for _, step := range []struct{ send, want string }{
			{"GET app:x", "-NOAUTH "},
			{`AUTH wrong`, "-WRONGPASS "},
			{`AUTH "two words \"quoted\""`, "+OK"},
			{"SET app:x 1", "+OK"},
			{"AUTH reader secret", "+OK"},
			{"GET app:x", "$1"},
		} {
			if got := say(t, nc, step.send); !strings.HasPrefix(got, step.want) {
				t.Errorf("%s: %q, want %q", step.send, got, step.want)
			}
		}
		if got := say(t, nc, "SET app:x 2"); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("SET by one who may only read: %q", got)
		}
		if got := text(t, s, "GET", "app:x"); got != "1" {
			t.Errorf("a check reads %q, want 1", got)
		}
	})
}

func TestArgs(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{Args: []string{"--maxclients", "7"}}, func(t *testing.T, s *redistest.Server) {
		if got, _ := s.Do("CONFIG", "GET", "maxclients").At(1).Text(); got != "7" {
			t.Errorf("maxclients = %q, want 7", got)
		}
	})
}

func TestPause(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		nc := dial(t, s)
		say(t, nc, "PING")
		s.Pause()
		io.WriteString(nc, "PING\r\n")
		nc.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := nc.Read(make([]byte, 16)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read from a server that stands still = %d, %v", n, err)
		}
		s.Continue()
		nc.SetDeadline(time.Now().Add(patience))
		buf := make([]byte, 16)
		if n, err := nc.Read(buf); string(buf[:n]) != "+PONG\r\n" {
			t.Errorf("Read after Continue = %q, %v", buf[:n], err)
		}
	})
}

func TestEndAndRestart(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, how := range []struct {
			name string
			end  func()
		}{
			{"Kill", s.Kill},
			{"Stop", s.Stop},
			{"Kill of a paused one", func() { s.Pause(); s.Kill() }},
			{"Stop of a paused one", func() { s.Pause(); s.Stop() }},
		} {
			addr := s.Addr()
			s.Do("SET", "key", "value")
			how.end()
			if _, err := s.Try("PING"); err == nil {
				t.Errorf("%s: it still answers", how.name)
			}
			s.Kill()
			s.Stop()
			s.Restart()
			if got := say(t, dial(t, s), "PING"); got != "+PONG" || s.Addr() != addr {
				t.Errorf("%s: PING at %s, which was %s = %q", how.name, s.Addr(), addr, got)
			}
			if got := s.Dump(); len(got) > 0 {
				t.Errorf("%s: keys are left: %q", how.name, got)
			}
		}
		s.Restart()
		s.Do("PING")
	})
}

func TestDump(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("SET", "a string", "x\x00\n")
		s.Do("HSET", "hash", "f2", "2", "f1", "1")
		s.Do("RPUSH", "list", "b", "a")
		s.Do("SADD", "set", "n", "m")
		s.Do("ZADD", "zset", 2.5, "a", -1, "b")
		want := []string{
			`string a string -1 "x\x00\n"`,
			`hash hash -1 {"f1":"1" "f2":"2"}`,
			`list list -1 ["b" "a"]`,
			`set set -1 {"m" "n"}`,
			`zset zset -1 {"b":-1 "a":2.5}`,
		}
		if got := s.Dump(); !slices.Equal(got, want) {
			t.Errorf("Dump() =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		s.Do("PEXPIRE", "hash", 60000)
		if got := s.Keys()[1].TTL; got <= 0 || got > time.Minute {
			t.Errorf("TTL after PEXPIRE 60000 = %v", got)
		}
		s.Do("FLUSHALL")
		s.Do("EVAL", "for i = 1, 3000 do redis.call('set', 'k' .. i, i) end", 0)
		if got := len(s.Keys()); got != 3000 {
			t.Errorf("%d keys of 3000", got)
		}
	})
}

// A write without an effect is no change.
func TestChanges(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		before := s.Changes()
		s.Do("DEL", "key")
		if n := s.Changes(); n != before || n == "" {
			t.Errorf("after DEL of no key %q changes, before %q", n, before)
		}
		s.Do("SET", "key", 1)
		if n := s.Changes(); n == before {
			t.Errorf("after SET %q changes, as before", n)
		}
	})
}

func TestMessages(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		m := s.PSubscribe("ch:*")
		s.Do("PUBLISH", "ch:1", "a")
		s.Do("PUBLISH", "other", "b")
		s.Do("PUBLISH", "ch:2", "c")
		want := []redistest.Message{{"ch:1", "a"}, {"ch:2", "c"}}
		if got := m.All(); !slices.Equal(got, want) {
			t.Errorf("All() = %v, want %v", got, want)
		}
		if got := m.All(); len(got) > 0 {
			t.Errorf("All() again = %v, want none", got)
		}
	})
}

func TestMonitor(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{Password: "secret"}, func(t *testing.T, s *redistest.Server) {
		m := s.Monitor()
		s.Do("EVAL", "return redis.call('get', KEYS[1])", 1, "key")
		lines := m.Lines()
		if len(lines) != 2 || !strings.Contains(lines[0], `"EVAL"`) || lines[1] != `[0 lua] "get" "key"` {
			t.Errorf("Lines() = %q", lines)
		}
		if lines := m.Lines(); len(lines) > 0 {
			t.Errorf("Lines() again = %q, want none", lines)
		}
		before := time.Now()
		s.Do("GET", "key")
		commands := m.Commands()
		if len(commands) != 1 || commands[0].At.Before(before.Truncate(time.Millisecond)) || commands[0].At.After(time.Now()) {
			t.Errorf("Commands() = %v, want one of now, %v", commands, before)
		}
	})
}
