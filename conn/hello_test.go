package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// TestHandshakeCommands checks the commands sent, all in one write.
func TestHandshakeCommands(t *testing.T) {
	tests := []struct {
		name string
		cfg  conn.Config
		want []string
	}{
		{"nothing", conn.Config{}, []string{"HELLO 3"}},
		{"password", conn.Config{Password: secret}, []string{"HELLO 3 AUTH default " + secret}},
		{"default user", conn.Config{Username: "default"}, []string{"HELLO 3"}},
		{"everything", conn.Config{Username: "al", Password: secret, ClientName: "me", DB: 2, Protocol: 3},
			[]string{"HELLO 3 AUTH al " + secret + " SETNAME me", "SELECT 2"}},
		{"2, nothing", conn.Config{Protocol: 2}, []string{"PING"}},
		{"2, password", conn.Config{Protocol: 2, Password: secret}, []string{"AUTH " + secret}},
		{"2, default user", conn.Config{Protocol: 2, Username: "default", Password: secret},
			[]string{"AUTH " + secret}},
		{"2, everything", conn.Config{Username: "al", Password: secret, ClientName: "me", DB: 2, Protocol: 2},
			[]string{"AUTH al " + secret, "CLIENT SETNAME me", "SELECT 2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := append(tt.want, libName, libVersion, "CLIENT NO-EVICT on")
			cfg := scripted(t, func(p *peer) {
				if !p.expect(want...) {
					return
				}
				for i := range want {
					if i == 0 && tt.cfg.Protocol != 2 {
						p.reply(hello3)
					} else {
						p.reply("+OK|")
					}
				}
				p.answerPing()
			})
			tt.cfg.Dial = cfg.Dial
			tt.cfg.Extra = []resp.Command{resp.Cmd("CLIENT", "NO-EVICT", "on")}
			s := open(t, tt.cfg)
			ping(t, s)
			if got := s.Protocol(); got != 3 && tt.cfg.Protocol != 2 || got != 2 && tt.cfg.Protocol == 2 {
				t.Errorf("Protocol() = %d with Protocol %d", got, tt.cfg.Protocol)
			}
			s.Close()
		})
	}
}

// TestHandshakeUserWithoutPassword: a user without a password authenticates with an empty password.
func TestHandshakeUserWithoutPassword(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		want := string(resp.Cmd("HELLO", 3, "AUTH", "al", "").AppendTo(nil)) + encode(libName) + encode(libVersion)
		if got := p.written(); got != want {
			t.Errorf("client wrote %q, want %q", got, want)
		}
		p.reply(hello3, "+OK|", "+OK|")
		p.answerPing()
	})
	cfg.Username = "al"
	s := open(t, cfg)
	ping(t, s)
	s.Close()
}

// TestHandshakePushes: pushes during the handshake do not count as replies, and Read returns them first. (B26)
func TestHandshakePushes(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		if !p.expect("HELLO 3", "SELECT 1", libName, libVersion) {
			return
		}
		p.reply(">2|+x|:1|", hello3, ">2|+x|:2|>2|+x|:3|", "+OK|", ">2|+x|:4|", "-ERR unknown subcommand|", "+OK|",
			">2|+x|:5|")
		p.answerPing()
	})
	cfg.DB = 1
	s := open(t, cfg)
	for i := range 5 {
		v, err := s.Read()
		n, _ := v.At(1).Int()
		if err != nil || v.Kind() != resp.Push || n != int64(i+1) {
			t.Fatalf("Read = %v of %d, %v; want push %d", v.Kind(), n, err, i+1)
		}
	}
	ping(t, s)
	s.Close()
}

func TestHandshakeTooManyPushes(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.written()
		for range 2000 {
			p.reply(">1|+x|")
		}
	})
	if err := refused(t, t.Context(), cfg); !strings.Contains(err.Error(), "pushes") {
		t.Errorf("DialStream = %v, want it to name the pushes", err)
	}
}

// TestHandshakeNoFallback: neither an error about credentials nor a temporary error leads to RESP2; the password is
// not sent twice. (B23)
func TestHandshakeNoFallback(t *testing.T) {
	for _, text := range []string{
		"NOAUTH HELLO must be called with the client already authenticated",
		"WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM User al has no permissions to run the 'hello' command",
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down",
		"BUSY Redis is busy running a script.",
		"ERR max number of clients reached",
		"ERR Client sent AUTH, but no password is set",
		"ERR invalid password",
		"DENIED Redis is running in protected mode because protected mode is enabled",
	} {
		t.Run(text, func(t *testing.T) {
			cfg := scripted(t, func(p *peer) {
				p.written()
				p.reply("-" + text + "|")
				p.expectClose()
			})
			cfg.Password = secret
			err := refused(t, t.Context(), cfg)
			if got, ok := errors.AsType[resp.Error](err); !ok || string(got) != text {
				t.Errorf("DialStream = %v, want the server's %q", err, text)
			}
		})
	}
}

// TestHandshakeFallback: any other refusal of HELLO 3 leads to RESP2 on the same connection, whatever the replies to
// the rest of the first write. (B24)
func TestHandshakeFallback(t *testing.T) {
	for _, text := range []string{
		"NOPROTO unsupported protocol version",
		"NOPROTO",
		"NOPROTOCOL x",
		"ERR",
		"ERR Protocol error",
		"ERR Protocol version is not 2 or 3",
		"ERR unknown subcommand",
		"ERR unsupported command",
		"ERR Unknown or disabled command 'HELLO'",
		"ERR command 'HELLO' not support",
		"ERR syntax error",
		"ERR wrong number of arguments for 'hello' command",
		"UNSUPPORTED x",
		"invalid command",
		"ERR unknown command 'HELLO'",
		"ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `al`, `" + secret + "`, ",
		"err Unknown Command",
	} {
		t.Run(text[:min(len(text), 40)], func(t *testing.T) {
			script := func(p *peer) {
				if !p.expect("HELLO 3 AUTH al "+secret+" SETNAME me", "SELECT 2", libName, libVersion, "READONLY") {
					return
				}
				p.reply("-"+text+"|", "-NOAUTH no|", ">1|+x|", "-ERR|", "-NOAUTH no|", "+OK|")
				if !p.expect("AUTH al "+secret, "CLIENT SETNAME me", "SELECT 2", libName, libVersion, "READONLY") {
					return
				}
				p.reply("+OK|+OK|+OK|-ERR|-ERR|+OK|")
				p.answerPing()
			}
			cfg := scripted(t, script)
			cfg.Username, cfg.Password, cfg.ClientName, cfg.DB = "al", secret, "me", 2
			cfg.Extra = []resp.Command{resp.Cmd("READONLY")}
			s := open(t, cfg)
			if s.Protocol() != 2 {
				t.Errorf("Protocol() = %d, want 2", s.Protocol())
			}
			if v, err := s.Read(); err != nil || v.Kind() != resp.Push {
				t.Errorf("Read = %v, %v; want the push", v.Kind(), err)
			}
			ping(t, s)
			s.Close()
		})
	}
}

// TestHandshakeOnly3: with Protocol 3 the caller gets the server's refusal, without the arguments echoed in it.
func TestHandshakeOnly3(t *testing.T) {
	cfg := scripted(t, func(p *peer) {
		p.written()
		p.reply("-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `" + secret + "`, |")
		p.expectClose()
	})
	cfg.Password, cfg.Protocol = secret, 3
	err := refused(t, t.Context(), cfg)
	if !errors.Is(err, resp.ErrGeneral) || !strings.Contains(err.Error(), "RESP3") {
		t.Errorf("DialStream = %v, want the server's error and a word on RESP3", err)
	}
}

// TestHandshakeRepeatsPassword: some proxies repeat the command that they refuse. No error has the password, whichever
// command the refusal answers; the rest of the text stays.
func TestHandshakeRepeatsPassword(t *testing.T) {
	for _, protocol := range []int{0, 2, 3} {
		for _, text := range []string{"ERR unsupported command: HELLO 3 AUTH default ", "WRONGPASS invalid password '", "NOAUTH AUTH "} {
			t.Run(fmt.Sprintf("%d %s", protocol, text), func(t *testing.T) {
				cfg := scripted(t, func(p *peer) {
					for p.written() != "" {
						p.reply(strings.Repeat("-"+text+secret+" x|", 8))
					}
				})
				cfg.Password, cfg.Protocol, cfg.Extra = secret, protocol, []resp.Command{resp.Cmd("READONLY")}
				err := refused(t, t.Context(), cfg)
				if got, ok := errors.AsType[resp.Error](err); !ok || string(got) != text+"..." {
					t.Errorf("DialStream = %v, want %q and no password", err, text)
				}
			})
		}
	}
}

// TestHandshakePasswordIsAWord: a password that is a word of the server's refusal does not hide what the refusal means.
func TestHandshakePasswordIsAWord(t *testing.T) {
	for text, password := range map[string]string{
		"ERR invalid password":                         "password",
		"ERR max number of clients reached":            "clients",
		"ERR Client sent AUTH, but no password is set": "AUTH",
	} {
		cfg := scripted(t, func(p *peer) {
			p.written()
			p.reply("-" + text + "|")
			p.expectClose()
		})
		cfg.Password = password
		err := refused(t, t.Context(), cfg)
		if got, ok := errors.AsType[resp.Error](err); !ok || string(got) != text {
			t.Errorf("DialStream = %v, want the server's %q", err, text)
		}
	}
}

// TestHandshakeAgreement: the reply to HELLO decides the protocol; a reply without one leads to RESP2.
func TestHandshakeAgreement(t *testing.T) {
	tests := []struct {
		reply    string
		protocol int
		want     int // 0: error; -2: RESP2 after a second write
	}{
		{hello3, 0, 3},
		{"*4|$6|server|$5|redis|$5|proto|:2|", 0, 2},
		{"*4|$6|server|$5|redis|$5|proto|:2|", 3, 0},
		{"%2|*1|:1|$1|x|+proto|$1|3|", 3, 3},
		{"%1|$5|proto|:4|", 0, -2},
		{"%1|$5|proto|$5|three|", 0, -2},
		{"%1|$6|server|$5|redis|", 0, -2},
		{"*3|$1|a|$1|b|$5|proto|", 0, -2},
		{"*0|", 0, -2},
		{"+OK|", 0, -2},
		{"+OK|", 3, 0},
		{"_|", 0, -2},
		{":3|", 0, -2},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q to %d", tt.reply, tt.protocol), func(t *testing.T) {
			cfg := scripted(t, func(p *peer) {
				p.written()
				p.reply(tt.reply, "+OK|", "+OK|")
				if tt.want < 0 && p.expect("PING", libName, libVersion) {
					p.reply("+PONG|", "+OK|", "+OK|")
				}
				p.expectClose()
			})
			cfg.Protocol = tt.protocol
			if tt.want == 0 {
				refused(t, t.Context(), cfg)
				return
			}
			s := open(t, cfg)
			if s.Protocol() != max(tt.want, -tt.want) {
				t.Errorf("Protocol() = %d, want %d", s.Protocol(), tt.want)
			}
			s.Close()
		})
	}
}

// TestHandshakeStepFails: an error reply to a command other than SETINFO fails the dial and names the command.
func TestHandshakeStepFails(t *testing.T) {
	tests := []struct {
		protocol int
		replies  string
		want     error
		name     string
	}{
		{3, hello3 + "-ERR DB index is out of range|+OK|+OK|+OK|", resp.ErrGeneral, "SELECT"},
		{3, hello3 + "-NOPERM no|+OK|+OK|+OK|", resp.ErrNoPerm, "SELECT"},
		{3, hello3 + "+OK|-ERR|-ERR|-READONLY no|", resp.ErrReadOnly, "FLUSHALL"},
		{3, hello3 + "+OK|-ERR|-ERR|!7|LOADING|", resp.ErrLoading, "FLUSHALL"},
		{2, "+OK|+OK|-ERR DB|", resp.ErrGeneral, "SELECT"},
		{2, "-WRONGPASS no|", resp.ErrWrongPass, "AUTH"},
		{2, "+OK|-ERR Client names cannot contain spaces|", resp.ErrGeneral, "CLIENT"},
		{2, "+OK|+OK|+OK|-NOAUTH no|", resp.ErrNoAuth, "CLIENT"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", tt.protocol, tt.want), func(t *testing.T) {
			cfg := scripted(t, func(p *peer) {
				p.written()
				p.reply(tt.replies)
				p.expectClose()
			})
			cfg.Password, cfg.ClientName, cfg.DB, cfg.Protocol = secret, "me", 7, tt.protocol
			cfg.Extra = []resp.Command{resp.Cmd("FLUSHALL", secret)}
			err := refused(t, t.Context(), cfg)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.name+": ") {
				t.Errorf("DialStream = %v, want %v to %s", err, tt.want, tt.name)
			}
		})
	}
}

// TestHandshakeCutAnywhere: replies may arrive byte by byte; a dial cut off at any byte fails and closes.
func TestHandshakeCutAnywhere(t *testing.T) {
	whole := strings.ReplaceAll(hello3+">1|+x|+OK|", "|", "\r\n")
	for n := range len(whole) + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			scripts := []func(p *peer){func(p *peer) {
				p.written()
				for i := range n {
					p.reply(whole[i : i+1])
				}
				if n == len(whole) {
					p.answerPing()
				}
			}}
			if n == 0 {
				scripts = append(scripts, askedForTLS)
			}
			cfg := scripted(t, scripts...)
			cfg.DB, cfg.Protocol, cfg.NoIdentity = 1, 3, true // no command that a second dial would omit
			if n == len(whole) {
				s := open(t, cfg)
				if v, err := s.Read(); err != nil || v.Kind() != resp.Push {
					t.Errorf("Read = %v, %v; want the push", v.Kind(), err)
				}
				ping(t, s)
				s.Close()
				return
			}
			err := refused(t, t.Context(), cfg)
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("DialStream = %v, want EOF", err)
			}
		})
	}
}

// TestPushesInAHandshake: a dial keeps pushes up to a number and a size, as a Pool does for OnPush.
func TestPushesInAHandshake(t *testing.T) {
	for _, tt := range []struct {
		pushes, size int
		fits         bool
	}{{1024, 8, true}, {1025, 8, false}, {15, 1 << 20, true}, {17, 1 << 20, false}, {1, 20 << 20, true}, {2, 20 << 20, false}} {
		t.Run(fmt.Sprintf("%d of %d bytes", tt.pushes, tt.size), func(t *testing.T) {
			cfg := scripted(t, func(p *peer) {
				p.expect("HELLO 3")
				push := fmt.Sprintf(">1|$%d|%s|", tt.size, strings.Repeat("x", tt.size))
				for range tt.pushes {
					p.reply(push)
				}
				p.reply(hello3)
				p.expectClose()
			})
			cfg.Protocol, cfg.NoIdentity, cfg.DialTimeout = 3, true, time.Minute // 40 MB on a busy machine
			if !tt.fits {
				if err := refused(t, t.Context(), cfg); !strings.Contains(err.Error(), "pushes before the end of the handshake") {
					t.Errorf("DialStream = %v, want the number or size of pushes", err)
				}
				return
			}
			s := open(t, cfg)
			defer s.Close()
			for range tt.pushes {
				if v, err := s.Read(); err != nil || v.Kind() != resp.Push {
					t.Fatalf("Read = %v, %v; want a push", v.Kind(), err)
				}
			}
		})
	}
}

// askedForTLS is a peer that hangs up when it is asked whether it expects TLS.
func askedForTLS(p *peer) { p.written() }

// TestHandshakeHungUp: after a server closes the connection on an unknown command, one more dial omits the command.
func TestHandshakeHungUp(t *testing.T) {
	closes := func(commands ...string) func(p *peer) { return func(p *peer) { p.expect(commands...) } }
	agrees := func(replies string, commands ...string) func(p *peer) {
		return func(p *peer) {
			if p.expect(commands...) {
				p.reply(replies)
				p.answerPing()
			}
		}
	}
	for name, test := range map[string]struct {
		cfg     conn.Config
		scripts []func(p *peer)
		want    int // 0: error
	}{
		"HELLO": {conn.Config{}, []func(p *peer){closes("HELLO 3", libName, libVersion), agrees("+PONG|", "PING")}, 2},
		"SETINFO behind HELLO": {conn.Config{DB: 1}, []func(p *peer){func(p *peer) {
			p.expect("HELLO 3", "SELECT 1", libName, libVersion)
			p.reply(hello3, "+OK|")
		}, agrees(hello3+"+OK|", "HELLO 3", "SELECT 1")}, 3},
		"SETINFO after the fallback": {conn.Config{Password: secret}, []func(p *peer){func(p *peer) {
			p.expect("HELLO 3 AUTH default "+secret, libName, libVersion)
			p.reply("-ERR what|-ERR|-ERR|")
			p.expect("AUTH "+secret, libName, libVersion)
			p.reply("+OK|")
		}, agrees("+OK|", "AUTH "+secret)}, 2},
		"3 only": {conn.Config{Protocol: 3, ClientName: "me"}, []func(p *peer){
			closes("HELLO 3 SETNAME me", libName, libVersion), agrees(hello3, "HELLO 3")}, 3},
		"2 only": {conn.Config{Protocol: 2, ClientName: "me"}, []func(p *peer){
			closes("PING", "CLIENT SETNAME me", libName, libVersion), agrees("+PONG|", "PING")}, 2},
		"no identity":          {conn.Config{NoIdentity: true, ClientName: "me"}, []func(p *peer){agrees(hello3, "HELLO 3")}, 3},
		"no identity, HELLO":   {conn.Config{NoIdentity: true}, []func(p *peer){closes("HELLO 3"), agrees("+PONG|", "PING")}, 2},
		"twice":                {conn.Config{}, []func(p *peer){closes("HELLO 3", libName, libVersion), closes("PING"), askedForTLS}, 0},
		"nothing to leave out": {conn.Config{NoIdentity: true, Protocol: 2}, []func(p *peer){closes("PING"), askedForTLS}, 0},
		"nor with 3":           {conn.Config{NoIdentity: true, Protocol: 3}, []func(p *peer){closes("HELLO 3"), askedForTLS}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := test.cfg
			cfg.Dial = scripted(t, test.scripts...).Dial
			if test.want == 0 {
				if err := refused(t, t.Context(), cfg); !errors.Is(err, io.EOF) {
					t.Errorf("DialStream = %v, want EOF", err)
				}
				return
			}
			s := open(t, cfg)
			if s.Protocol() != test.want {
				t.Errorf("Protocol() = %d, want %d", s.Protocol(), test.want)
			}
			ping(t, s)
			s.Close()
		})
	}
}

// TestHandshakeFallbackCut: a dial fails if the server closes in the middle of the fallback.
func TestHandshakeFallbackCut(t *testing.T) {
	for _, replies := range [][2]string{{"-NOPROTO|", ""}, {"-NOPROTO|-ERR|+O", ""}, {"-NOPROTO|-ERR|+OK|", "+PONG|+OK|"}} {
		scripts := []func(p *peer){func(p *peer) {
			p.written()
			p.reply(replies[0])
			if replies[1] != "" {
				p.expect("PING", libName, libVersion)
				p.reply(replies[1])
			}
		}}
		if !strings.HasSuffix(replies[0], "O") { // between two replies, a possible sign of an unknown command
			scripts = append(scripts, func(p *peer) { p.expect("PING") })
		}
		cfg := scripted(t, scripts...)
		if err := refused(t, t.Context(), cfg); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("replies %q: DialStream = %v, want EOF", replies, err)
		}
	}
	// Closed between the two writes.
	nc := &turnedAway{reason: strings.NewReader("-NOPROTO\r\n-ERR\r\n-ERR\r\n-ERR no more\r\n"), writes: 1}
	cfg := conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nc, nil }}
	if err := refused(t, t.Context(), cfg); !strings.Contains(err.Error(), "ERR no more") {
		t.Errorf("DialStream = %v, want the server's last word", err)
	}
}

// turnedAway is the connection of a client refused before its first write: the reason is readable, but writes fail
// after a given number.
type turnedAway struct {
	net.Conn
	reason  io.Reader
	writes  int    // number of writes that succeed
	written string // bytes of the successful writes
	closed  int
}

func (c *turnedAway) Write(b []byte) (int, error) {
	if c.writes == 0 {
		return 0, syscall.EPIPE
	}
	c.writes--
	c.written += string(b)
	return len(b), nil
}

func (c *turnedAway) Read(b []byte) (int, error) { return c.reason.Read(b) }
func (c *turnedAway) Close() error               { c.closed++; return nil }

// TestHandshakeTurnedAway: the server's error reply takes precedence over the failed write. (B40)
func TestHandshakeTurnedAway(t *testing.T) {
	tests := []struct {
		said string
		want error
	}{
		{"-ERR max number of clients reached\r\n", resp.Error("ERR max number of clients reached")},
		{"-DENIED Redis is running in protected mode\r\n", resp.Error("DENIED Redis is running in protected mode")},
		{"", syscall.EPIPE},
		{"-ERR max", syscall.EPIPE},
		{"+OK\r\n", syscall.EPIPE},
		{"garbage", syscall.EPIPE},
	}
	for _, tt := range tests {
		nc := &turnedAway{reason: strings.NewReader(tt.said)}
		cfg := conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nc, nil }}
		err := refused(t, t.Context(), cfg)
		if said, ok := errors.AsType[resp.Error](err); ok && said != tt.want || !ok && !errors.Is(err, tt.want) {
			t.Errorf("server said %q: DialStream = %v, want %v", tt.said, err, tt.want)
		}
		if nc.closed == 0 {
			t.Errorf("server said %q: the connection was not closed", tt.said)
		}
	}
}

// FuzzHandshake: a successful handshake has read exactly one reply per command; Read then returns the pushes and the
// remaining values unchanged. A failed handshake has closed the connection.
func FuzzHandshake(f *testing.F) {
	for _, seed := range []string{
		hello3 + "+OK|+OK|+OK|", hello3 + ">2|+x|:1|+OK|-ERR|+OK|>1|+y|+PONG|", "-NOPROTO|-ERR|-ERR|-ERR|+OK|+OK|+OK|+OK|:7|",
		"-ERR unknown command|+OK|+OK|+OK|+OK|+OK|-ERR|-ERR|", "-WRONGPASS|", "*2|$5|proto|:2|+OK|+OK|+OK|", "HTTP/1.1 400|",
	} {
		f.Add(strings.ReplaceAll(seed, "|", "\r\n"), 0)
		f.Add(strings.ReplaceAll(seed, "|", "\r\n"), 2)
	}
	f.Fuzz(func(t *testing.T, said string, protocol int) {
		nc := &turnedAway{reason: strings.NewReader(said), writes: 3}
		cfg := conn.Config{DB: 1, Protocol: protocol & 2, Password: secret}
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nc, nil }
		s, err := conn.DialStream(t.Context(), cfg)
		if err != nil {
			checkDialError(t, err)
			if nc.closed == 0 {
				t.Errorf("DialStream = %v, and the connection is open", err)
			}
			return
		}
		defer s.Close()
		for i, want := range afterHandshake(t, said, strings.Count(nc.written, "*")) {
			if got, err := s.Read(); err != nil || !got.Equal(want) {
				t.Fatalf("Read %d = %v, %v; want %v", i, got.Kind(), err, want.Kind())
			}
		}
		if v, err := s.Read(); err == nil {
			t.Errorf("Read = %v, want no more", v.Kind())
		}
	})
}

// afterHandshake returns a server's values other than its replies to n commands: first the pushes, then the rest.
func afterHandshake(t *testing.T, said string, commands int) []resp.Value {
	t.Helper()
	var values []resp.Value
	for r := resp.NewReader(strings.NewReader(said), resp.Limits{}); ; {
		v, err := r.Read()
		switch {
		case err != nil && commands > 0:
			t.Errorf("the handshake ended with %d replies due", commands)
			return values
		case err != nil:
			return values
		case commands > 0 && v.Kind() != resp.Push:
			commands--
		default:
			values = append(values, v)
		}
	}
}
