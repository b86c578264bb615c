package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

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
