package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

func TestConfigDefaults(t *testing.T) {
	want := Config{
		Network: "tcp", Addr: "127.0.0.1:6379",
		DialTimeout: 5 * time.Second, Timeout: 5 * time.Second, PingInterval: 5 * time.Second,
		IdleTimeout: 5 * time.Minute, Conns: 1, MaxConns: 16,
		Retry: Retry{
			MinBackoff: 8 * time.Millisecond, MaxBackoff: 512 * time.Millisecond, Budget: 5 * time.Second,
		},
	}
	got := Config{}.withDefaults()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("withDefaults() = %#v, want %#v", got, want)
	}
	if err := got.validate(); err != nil {
		t.Errorf("the zero Config is not valid: %v", err)
	}
	// Defaults replace neither negative nor explicit values.
	off := Config{
		Network: "unix", Addr: "/x", DialTimeout: -1, Timeout: -1, PingInterval: -1, MaxAge: -1, IdleTimeout: -1,
		Conns: 2, MaxConns: 3, Retry: Retry{Attempts: -1, MinBackoff: time.Second, Budget: -1},
	}
	want = off
	want.Retry.Attempts, want.Retry.MaxBackoff = 1, time.Second
	if got := off.withDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("withDefaults() = %#v, want %#v", got, want)
	}
	if got := want.withDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("withDefaults() again = %#v, want %#v", got, want)
	}
	if err := want.validate(); err != nil {
		t.Errorf("negative values are not valid: %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	tests := []struct {
		cfg  Config
		want string // part of the error; "" for none
	}{
		{Config{DB: -1}, "DB is -1"},
		{Config{Protocol: 1}, "Protocol is 1"},
		{Config{Protocol: 4}, "Protocol is 4"},
		{Config{Protocol: 2}, ""},
		{Config{Protocol: 3}, ""},
		{Config{ClientName: "a b"}, "ClientName"},
		{Config{ClientName: "a\r\n"}, "ClientName"},
		{Config{ClientName: "é"}, "ClientName"},
		{Config{ClientName: "worker-1:~!"}, ""},
		{Config{Conns: -1}, "Conns is -1"},
		{Config{MaxConns: -2}, "MaxConns is -2"},
		{Config{Retry: Retry{MinBackoff: -1}}, "MinBackoff"},
		{Config{Retry: Retry{MaxBackoff: -1}}, "MaxBackoff"},
		{Config{Retry: Retry{MinBackoff: 2, MaxBackoff: 1}}, "MaxBackoff"},
		{Config{Extra: []resp.Command{resp.Cmd("PING"), resp.Cmd("X", time.Second)}}, "Extra[1]"},
		{Config{Extra: []resp.Command{{}}}, "Extra[0]"},
		{Config{Extra: []resp.Command{resp.Cmd("Monitor")}}, "Extra[0]"},
		{Config{Extra: []resp.Command{resp.Cmd("CLIENT", "reply", "OFF")}}, "Extra[0]"},
		{Config{Extra: []resp.Command{resp.Cmd("hello", 2)}}, "Extra[0]"},
		{Config{Extra: []resp.Command{resp.Cmd("MULTI")}}, "Extra[0]: MULTI is"},
		{Config{Extra: []resp.Command{resp.Cmd("CLIENT", "NO-EVICT", "on"), resp.Cmd("READONLY")}}, ""},
		{Config{Network: "udp", Addr: "a:1"}, "Network"},
		{Config{Network: "tcp4"}, "Addr"},
		{Config{Network: "unix"}, "path"},
		{Config{Network: "unix", Addr: "/x"}, ""},
		{Config{Addr: "localhost"}, "Addr"},
		{Config{Addr: "::1:6379"}, "brackets"},
		{Config{Addr: "[::1]:6379"}, ""},
		{Config{TLS: &tls.Config{}}, ""},
		{Config{Network: "unix", Addr: "/x", TLS: &tls.Config{}}, "ServerName"},
		{Config{Network: "unix", Addr: "/x", TLS: &tls.Config{ServerName: "x"}}, ""},
		{Config{Network: "unix", Addr: "/x", TLS: &tls.Config{InsecureSkipVerify: true}}, ""},
		{Config{Addr: ":6379", TLS: &tls.Config{}}, "ServerName"},
		{Config{Sentinel: Sentinel{Master: "m", Addrs: []string{"a:1", ":1"}, TLS: &tls.Config{}}}, "Sentinel.Addrs[1]"},
		{Config{Sentinel: Sentinel{Master: "m", Addrs: []string{":1"}, TLS: &tls.Config{ServerName: "x"}}}, ""},
		{Config{Sentinel: Sentinel{Master: "m", Addrs: []string{":1"}, TLS: &tls.Config{InsecureSkipVerify: true}}}, ""},
	}
	for _, tt := range tests {
		err := tt.cfg.withDefaults().validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%#v: validate() = %v, want nil", tt.cfg, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%#v: validate() = %v, want an error with %q", tt.cfg, err, tt.want)
		}
	}
}

// TestDialTimeoutOfSentinels: the default DialTimeout is shorter with sentinels; an explicit value counts.
func TestDialTimeoutOfSentinels(t *testing.T) {
	sentinels := Sentinel{Master: "m", Addrs: []string{"a:1"}}
	for _, tt := range []struct {
		cfg  Config
		want time.Duration
	}{
		{Config{}, 5 * time.Second},
		{Config{Sentinel: sentinels}, 2 * time.Second},
		{Config{Sentinel: sentinels, DialTimeout: 7 * time.Second}, 7 * time.Second},
		{Config{Sentinel: sentinels, DialTimeout: -1}, -1},
	} {
		if got := tt.cfg.withDefaults().DialTimeout; got != tt.want {
			t.Errorf("DialTimeout of %v = %v, want %v", tt.cfg, got, tt.want)
		}
	}
}

// TestConfigString: no format of a Config shows its password.
func TestConfigString(t *testing.T) {
	const password = "s3cr3t"
	tests := []struct {
		cfg  Config
		want string
	}{
		{Config{}, "redis://127.0.0.1:6379"},
		{Config{Addr: "[::1]:1", Username: "al", Password: password, DB: 3}, "redis://al@[::1]:1?db=3"},
		{Config{Addr: "a:1", TLS: &tls.Config{}, Password: password}, "rediss://a:1"},
		{Config{Network: "unix", Addr: "/x", Password: password}, "unix:///x"},
	}
	for _, tt := range tests {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if got := fmt.Sprintf(verb, tt.cfg); got != tt.want {
				t.Errorf("Sprintf(%q) = %q, want %q", verb, got, tt.want)
			}
		}
	}
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("dial", "config", tests[1].cfg, "at", &tests[1].cfg)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("dial", "config", tests[1].cfg, "at", &tests[1].cfg)
	if strings.Contains(b.String(), password) {
		t.Errorf("the log holds the password: %s", b.String())
	}
	if _, err := url.Parse(tests[1].want); err != nil {
		t.Error(err)
	}
}

func TestClassify(t *testing.T) {
	dialled := func(err error) error { return &Error{Op: "dial", Err: fmt.Errorf("handshake: %w", err)} }
	notSent := func(err error) error { return &Error{Op: "GET", Err: err} }
	sent := func(err error) error { return &Error{Op: "GET", Sent: true, Err: err} }
	for _, test := range []struct {
		err       error
		connected bool
		want      netfail.Verdict
	}{
		{resp.Error("LOADING x"), true, netfail.Again},
		{resp.Error("READONLY x"), true, netfail.Redial},
		{resp.Error("ERR max number of clients reached"), true, netfail.Again},
		{resp.Error("ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -READONLY x"), true, netfail.Redial},
		{resp.Error("ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -LOADING x"), true, netfail.Final},
		{resp.Error("NOAUTH x"), true, netfail.Redial},
		{resp.Error("EXECABORT Transaction discarded because of: READONLY x"), true, netfail.Redial},
		{resp.Error("EXECABORT Transaction discarded because of previous errors."), true, netfail.Final},
		{dialled(resp.Error("NOAUTH x")), false, netfail.Final},
		{resp.Error("LOADING"), true, netfail.Again},
		{resp.Error("LOADINGS x"), true, netfail.Final},
		{resp.Error("loading x"), true, netfail.Final},
		{resp.Error(""), true, netfail.Final},
		{fmt.Errorf("transaction: %w (%w)", resp.Error("LOADING x"), resp.ErrExecAbort), true, netfail.Again},
		{notSent(io.EOF), true, netfail.Again},
		{notSent(ErrClosed), true, netfail.Final},
		{sent(io.EOF), true, netfail.Final},
		{sent(resp.Error("LOADING x")), true, netfail.Final},
		{ErrTxAborted, true, netfail.Final},
		{dialled(syscall.ECONNREFUSED), false, netfail.Again},
		{dialled(io.EOF), false, netfail.Again},
		{dialled(errors.New("a reply without a command")), false, netfail.Again},
		{dialled(ErrClosed), false, netfail.Final},
		{dialled(context.DeadlineExceeded), false, netfail.Again},
		{dialled(&net.DNSError{IsNotFound: true}), false, netfail.Again},
		{dialled(resp.Error("LOADING x")), false, netfail.Again},
		{dialled(resp.Error("READONLY x")), false, netfail.Again},
		{dialled(resp.Error("ERR max number of clients reached")), false, netfail.Again},
		{dialled(resp.Error("WRONGPASS x")), false, netfail.Final},
		{dialled(resp.Error("ERR DB index is out of range")), false, netfail.Final},
		{dialled(&resp.SyntaxError{}), false, netfail.Final},
		{dialled(tls.RecordHeaderError{}), false, netfail.Final},
		{dialled(&tls.CertificateVerificationError{}), false, netfail.Final},
		{dialled(&net.OpError{Op: "remote error", Err: io.EOF}), false, netfail.Final},
		{dialled(&net.OpError{Op: "read", Err: io.EOF}), false, netfail.Again},
		{ErrClosed, false, netfail.Final},
		{context.Canceled, false, netfail.Final},
	} {
		if got := classify(test.err, test.connected); got != test.want {
			t.Errorf("classify(%v, %v) = %d, want %d", test.err, test.connected, got, test.want)
		}
	}
}

// TestRuleCost checks that finding a command's rule allocates nothing.
func TestRuleCost(t *testing.T) {
	for _, b := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n"} {
		encoded := []byte(b)
		if n := testing.AllocsPerRun(100, func() { ruleOfEncoded(encoded) }); n != 0 {
			t.Errorf("ruleOfEncoded(%q) allocates %v times", b, n)
		}
	}
}

func BenchmarkRule(b *testing.B) {
	for name, cmd := range map[string]string{"get": "*1\r\n$3\r\nGET\r\n", "evalsha": "*1\r\n$7\r\nEVALSHA\r\n"} {
		b.Run(name, func(b *testing.B) {
			encoded := []byte(cmd)
			for b.Loop() {
				ruleOfEncoded(encoded)
			}
		})
	}
}
