package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

var (
	errClosed  = errors.New("closed by the test")
	errDue     = errors.New("due")
	errSent    = errors.New("sent")
	errNotSent = errors.New("not sent")
)

// bubble runs fn in virtual time with a server in memory, which ends with fn.
func bubble(t *testing.T, fn func(t *testing.T, srv *fakeredis.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		fn(t, srv)
		srv.Close()
	})
}

// link is a Link with calls that take arguments in place of a Request. It is the Owner of the Link.
type link struct {
	*pipeline.Link
	wg          sync.WaitGroup
	outstanding int   // calls that ended with the Link; known after close
	err         error // reason of the failure; known after close
}

func (l *link) Push(*pipeline.Link, resp.Value) {}
func (l *link) Due(*pipeline.Link)              { l.Fail(errDue) }
func (l *link) Drained(*pipeline.Link)          { l.Fail(errClosed) }
func (l *link) Lost(_ *pipeline.Link, outstanding int, err error) {
	l.outstanding, l.err = outstanding, err
}

// limits returns a Config with a Timeout, and with PINGs after five seconds.
func limits(timeout time.Duration) pipeline.Config {
	return pipeline.Config{Timeout: timeout, PingInterval: 5 * time.Second}
}

// shared returns cfg for a Link that independent callers use.
func shared(cfg pipeline.Config) pipeline.Config {
	cfg.Shared = true
	return cfg
}

// open connects a Link to srv. The caller closes the link.
func open(t testing.TB, srv *fakeredis.Server, cfg pipeline.Config) *link {
	t.Helper()
	nc, err := srv.Dial(context.Background(), "tcp", "server:6379")
	if err != nil {
		t.Fatalf("Dial = %v", err)
	}
	return openOver(nc, cfg)
}

// openOver makes a Link over nc. The caller closes the link.
func openOver(nc net.Conn, cfg pipeline.Config) *link {
	s := pipeline.NewSession(nc, nc, resp.Limits{})
	s.Addr, s.Proto = "server:6379", 2
	l := new(link)
	l.Link = pipeline.New(s, cfg, l, &l.wg)
	return l
}

func (l *link) close() {
	l.Fail(errClosed)
	l.wg.Wait()
}

// Do sends a command and returns its reply. An error wraps errSent or errNotSent.
func (l *link) Do(ctx context.Context, args ...any) (resp.Value, error) {
	v, sent, err := l.Link.Do(ctx, pipeline.Request{Commands: []resp.Command{resp.Cmd(args...)}}, pipeline.Text{})
	return v, failure(sent, err)
}

// SendBatch sends commands and returns their replies. An error wraps errSent or errNotSent.
func (l *link) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	values, sent, err := l.DoBatch(ctx, pipeline.Request{Commands: cmds})
	return values, failure(sent, err)
}

func failure(sent bool, err error) error {
	switch {
	case err == nil:
		return nil
	case sent:
		return fmt.Errorf("%w: %w", errSent, err)
	}
	return fmt.Errorf("%w: %w", errNotSent, err)
}

// want fails the test unless the command's reply is text; "null" stands for a null reply. Any goroutine may call it.
func want(t testing.TB, l *link, reply string, args ...any) {
	t.Helper()
	v, err := l.Do(context.Background(), args...)
	if err != nil {
		t.Errorf("Do(%v) = %v, want %q", args, err, reply)
		return
	}
	if v.IsNull() && reply == "null" {
		return
	}
	if s, err := v.Text(); err != nil || s != reply {
		t.Errorf("Do(%v) = %q, %v; want %q", args, s, err, reply)
	}
}

// wantFailure fails the test unless err wraps sent, which is errSent or errNotSent, and cause.
func wantFailure(t testing.TB, err, sent, cause error) {
	t.Helper()
	if !errors.Is(err, sent) || !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v and %v", err, sent, cause)
	}
}

// echo makes a call whose answer is its own argument.
func echo(t testing.TB, ctx context.Context, l *link, n int) {
	t.Helper()
	if v, err := l.Do(ctx, "ECHO", n); err != nil {
		t.Errorf("ECHO %d = %v", n, err)
	} else if got, _ := v.Int(); got != int64(n) {
		t.Errorf("ECHO %d = %d: the answer of another call", n, got)
	}
}

// onName returns an interceptor for the n-th command with a name.
func onName(name string, n int, a fakeredis.Action) func(fakeredis.Cmd) fakeredis.Action {
	return func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name && cmd.N == n {
			return a
		}
		return fakeredis.Run()
	}
}

// between fails the test unless lo <= d <= hi.
func between(t testing.TB, what string, d, lo, hi time.Duration) {
	t.Helper()
	if d < lo || d > hi {
		t.Errorf("%s after %v, want %v to %v", what, d, lo, hi)
	}
}
