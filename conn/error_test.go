package conn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

func TestError(t *testing.T) {
	tests := []struct {
		err       *conn.Error
		text      string
		retryable bool
	}{
		{&conn.Error{Op: "GET", Addr: "db:1", Sent: true, Err: io.EOF}, "conn: GET db:1: sent but not answered: EOF", false},
		{&conn.Error{Op: "GET", Addr: "db:1", Err: conn.ErrClosed}, "conn: GET db:1: not sent: closed", true},
		{&conn.Error{Op: "dial", Addr: "db:1", Err: io.EOF}, "conn: dial db:1: EOF", true},
		{&conn.Error{Op: "GET"}, "conn: GET: not sent", true},
	}
	for _, test := range tests {
		if got := test.err.Error(); got != test.text {
			t.Errorf("text = %q, want %q", got, test.text)
		}
		wrapped := fmt.Errorf("more: %w", test.err)
		if conn.SafeToRetry(wrapped) != test.retryable || errors.Is(wrapped, conn.ErrNotSent) != test.retryable ||
			errors.Is(wrapped, conn.ErrUncertain) == test.retryable {
			t.Errorf("%v matches the wrong one of ErrNotSent and ErrUncertain", wrapped)
		}
		if test.err.Err != nil && !errors.Is(wrapped, test.err.Err) {
			t.Errorf("%v does not wrap its cause", wrapped)
		}
	}
}

func TestSafeToRetry(t *testing.T) {
	not, sent := &conn.Error{Op: "GET"}, &conn.Error{Op: "GET", Sent: true}
	for _, err := range []error{nil, io.EOF, context.Canceled, resp.ErrLoading, conn.ErrClosed, conn.ErrTxAborted,
		conn.ErrUncertain, errors.Join(not, sent), &conn.Error{Op: "GET", Sent: true, Err: not}} {
		if conn.SafeToRetry(err) {
			t.Errorf("SafeToRetry(%v) = true", err)
		}
	}
	if !conn.SafeToRetry(conn.ErrNotSent) {
		t.Error("SafeToRetry(ErrNotSent) = false")
	}
}
