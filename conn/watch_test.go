package conn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Do("SET", "n", "1")
		calls, changes := 0, 2
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, err := resp.As[int](c.Do(t.Context(), "GET", "n"))
			if calls++; calls <= changes {
				srv.Do("INCR", "n")
			}
			return []resp.Command{resp.Cmd("SET", "n", 2*n), resp.Cmd("GET", "n")}, err
		}
		values, err := p.Watch(t.Context(), []string{"n", "m"}, double)
		if got := texts(values); got != "OK 6" || err != nil || calls != 3 {
			t.Errorf("Watch = %s, %v after %d calls, want the double of 3", got, err, calls)
		}
		calls = 0
		err = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, double)
			return err
		})
		if !errors.Is(err, conn.ErrTxAborted) || calls != 1 {
			t.Errorf("Watch of a Conn = %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = p.Watch(ctx, []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			if calls++; calls == 5 {
				defer cancel()
			}
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if err == nil || calls != 5 {
			t.Errorf("Watch of a key that always changes = %v after %d calls", err, calls)
		}
	})
}

// A call that changes nothing leaves the connection as it was.
func TestWatchOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		no := errors.New("no")
		for _, want := range []error{nil, no} {
			values, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) { return nil, want })
			if err != want || len(values) != 0 {
				t.Errorf("Watch = %v, %v, want %v", values, err, want)
			}
		}
		if n := p.Stats(); n.Idle != 1 || srv.Count("EXEC") != 0 || srv.Count("UNWATCH") != 2 {
			t.Errorf("%+v after %d EXEC and %d UNWATCH", n, srv.Count("EXEC"), srv.Count("UNWATCH"))
		}
		if _, err := p.Watch(t.Context(), nil, nil); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Watch without keys = %v", err)
		}
	})
}

// An error of fn ends Watch, even if it says that a transaction was aborted.
func TestWatchReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		calls := 0
		mine := fmt.Errorf("mine: %w", conn.ErrTxAborted)
		_, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			if calls++; calls > 1 {
				return nil, nil
			}
			return nil, mine
		})
		if err != mine || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Watch pauses before it begins anew, and the end of ctx ends the pause.
func TestWatchPauses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{MinBackoff: 40 * time.Millisecond}})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		calls := 0
		_, err := p.Watch(ctx, []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			calls++
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) || calls < 5 || calls > 20 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Commands that are refused before they are sent leave no WATCH open.
func TestWatchOfRefusedCommands(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c, err := conn.Dial(t.Context(), conn.Config{Addr: "x:1", Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			return []resp.Command{resp.Cmd("SET", "n", nil)}, nil
		})
		if !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Watch = %v", err)
		}
		srv.Do("SET", "n", "other")
		if _, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("SET", "m", "1")}); err != nil {
			t.Errorf("the next Tx = %v", err)
		}
	})
}

// Inside a MULTI of the caller, UNWATCH would become a part of the transaction.
func TestWatchInsideAnOpenMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
				_, err := c.Do(t.Context(), "MULTI")
				return []resp.Command{resp.Cmd("SET", "n", 0)}, err
			})
			if !errors.Is(err, conn.ErrRefused) {
				t.Errorf("Watch = %v, want ErrRefused", err)
			}
			return nil
		})
		if n := srv.Count("UNWATCH"); n != 0 {
			t.Errorf("%d UNWATCH inside the MULTI", n)
		}
	})
}
