package leader_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

func open(t *testing.T, cfg conn.Config) *conn.Pool {
	t.Helper()
	pool, err := conn.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// The scripts do on a server what their Go functions do on the fake one.
func TestScriptsLikeTheServer(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		srv := fakeredis.New()
		defer srv.Close()
		srv.Interpret(lockscripts.Interpret)
		real, fake := open(t, s.Config()), open(t, conn.Config{Dial: srv.Dial})
		send := func(pool *conn.Pool, args []string) string {
			values := make([]any, len(args))
			for i, arg := range args {
				values[i] = arg
			}
			v, err := pool.Do(t.Context(), values...)
			if err != nil {
				t.Fatal(err)
			}
			return v.String()
		}
		for i, step := range [][]string{
			{"EVAL", leader.PublishSource, "2", "r{job}", "{job}", "a:1", "here", "7"},
			{"HSET", "{job}", "a:1", "1"},
			{"EVAL", leader.PublishSource, "2", "r{job}", "{job}", "b:1", "there", "8"},
			{"EVAL", leader.PublishSource, "2", "r{job}", "{job}", "a:1", "", "7"},
			{"EVAL", leader.PublishSource, "2", "r{job}", "{job}", "a:1", "here", "7"},
			{"HMGET", "r{job}", "owner", "address", "token"},
			{"HSTRLEN", "r{job}", "since"},
			{"EVAL", leader.WithdrawSource, "1", "r{job}", "b:1"},
			{"EXISTS", "r{job}"},
			{"EVAL", leader.PublishSource, "1", "r{job}", "b:1", "there", "6"},
			{"EVAL", leader.PublishSource, "1", "r{job}", "a:1", "there", "7"},
			{"HMGET", "r{job}", "owner", "address", "token"},
			{"EVAL", leader.WithdrawSource, "1", "r{job}", "a:1"},
			{"EXISTS", "r{job}"},
			{"EVAL", leader.WithdrawSource, "1", "r{job}", "a:1"},
			{"EVAL", leader.PublishSource, "1", "r{job}", "b:1", "there", "6"},
			{"HMGET", "r{job}", "owner", "address", "token"},
			{"HSET", "r{job}", "token", "none"},
			{"EVAL", leader.PublishSource, "1", "r{job}", "c:1", "", "9"},
			{"HMGET", "r{job}", "owner", "address", "token"},
		} {
			if got, want := send(fake, step), send(real, step); !reflect.DeepEqual(got, want) {
				t.Errorf("step %d: the Go function returns %s, the script %s", i, got, want)
			}
		}
	})
}

func TestServerLeader(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		cfg := s.Config()
		cfg.Protocol = proto
		client := func() *lock.Client {
			c, err := lock.New(open(t, cfg), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		watcher := client()
		var before int64
		for _, address := range []string{"a:1", "b:1"} {
			ctx, cancel := context.WithCancel(t.Context())
			err := leader.Run(ctx, client(), "job", leader.Config{Address: address}, func(ctx context.Context) error {
				now, err := leader.Observe(ctx, watcher, "job")
				if err != nil || now.Address != address || now.Token <= before || now.Token != leader.Token(ctx) || now.Since.IsZero() {
					t.Errorf("Observe() = %+v, %v", now, err)
				}
				before = now.Token
				cancel()
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v", err)
			}
		}
		if now, err := leader.Observe(t.Context(), watcher, "job"); err != nil || now != (leader.Leader{}) {
			t.Errorf("Observe() = %+v, %v, want nobody", now, err)
		}
	})
}
