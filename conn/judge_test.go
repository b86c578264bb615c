package conn

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

func TestJudge(t *testing.T) {
	dialled := func(err error) error { return &Error{Op: "dial", Err: fmt.Errorf("handshake: %w", err)} }
	notSent := func(err error) error { return &Error{Op: "GET", Err: err} }
	sent := func(err error) error { return &Error{Op: "GET", Sent: true, Err: err} }
	for _, test := range []struct {
		err       error
		connected bool
		want      verdict
	}{
		{resp.Error("LOADING x"), true, again},
		{resp.Error("READONLY x"), true, redial},
		{resp.Error("ERR max number of clients reached"), true, again},
		{resp.Error("ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -READONLY x"), true, redial},
		{resp.Error("ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -LOADING x"), true, final},
		{resp.Error("LOADING"), true, again},
		{resp.Error("LOADINGS x"), true, final},
		{resp.Error("loading x"), true, final},
		{resp.Error(""), true, final},
		{fmt.Errorf("transaction: %w (%w)", resp.Error("LOADING x"), resp.ErrExecAbort), true, again},
		{notSent(io.EOF), true, again},
		{notSent(ErrClosed), true, final},
		{sent(io.EOF), true, final},
		{sent(resp.Error("LOADING x")), true, final},
		{ErrTxAborted, true, final},
		{dialled(syscall.ECONNREFUSED), false, again},
		{dialled(io.EOF), false, again},
		{(&link{err: io.EOF}).lostEarly(), false, again},
		{(&link{err: errUnasked}).lostEarly(), false, again},
		{(&link{err: ErrClosed}).lostEarly(), false, final},
		{dialled(context.DeadlineExceeded), false, again},
		{dialled(&net.DNSError{IsNotFound: true}), false, again},
		{dialled(resp.Error("LOADING x")), false, again},
		{dialled(resp.Error("READONLY x")), false, again},
		{dialled(resp.Error("ERR max number of clients reached")), false, again},
		{dialled(resp.Error("WRONGPASS x")), false, final},
		{dialled(resp.Error("ERR DB index is out of range")), false, final},
		{dialled(&resp.SyntaxError{}), false, final},
		{dialled(tls.RecordHeaderError{}), false, final},
		{dialled(&tls.CertificateVerificationError{}), false, final},
		{dialled(&net.OpError{Op: "remote error", Err: io.EOF}), false, final},
		{dialled(&net.OpError{Op: "read", Err: io.EOF}), false, again},
		{ErrClosed, false, final},
		{context.Canceled, false, final},
	} {
		if got := judge(test.err, test.connected); got != test.want {
			t.Errorf("judge(%v, %v) = %d, want %d", test.err, test.connected, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	r := Config{}.withDefaults().Retry
	for n, most := range map[int]time.Duration{
		0: 8 * ms, 1: 16 * ms, 5: 256 * ms, 6: 512 * ms, 7: 512 * ms, 31: 512 * ms, 1 << 30: 512 * ms,
	} {
		if got := r.backoff(n, 0); got != most {
			t.Errorf("backoff(%d, 0) = %v, want %v", n, got, most)
		}
		if got := r.backoff(n, 0.999999); got < most/2 || got > most/2+ms {
			t.Errorf("backoff(%d, 0.999999) = %v, want half of %v", n, got, most)
		}
	}
	huge := Retry{MinBackoff: 1 << 62, MaxBackoff: 1<<63 - 1}
	for n := range 70 {
		if got := huge.backoff(n, 0.5); got <= 0 {
			t.Errorf("backoff(%d) of %v = %v", n, huge.MinBackoff, got)
		}
	}
}

// TestRuleCost pins that looking for special commands costs no memory.
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
