package lockwire_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func TestServerOpen(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{Password: "s3/cr3t@"}, func(t *testing.T, s *redistest.Server) {
		c := useLocks(t, s.URL(), lockwire.Config{})
		if _, ok := c.Server().(*conn.Pool); !ok {
			t.Errorf("Server() is a %T", c.Server())
		}
		wrong := strings.Replace(s.URL(), url.UserPassword("", "s3/cr3t@").String(), ":s3cr3t", 1)
		if _, err := lockwire.Open(t.Context(), wrong, lockwire.Config{}); err == nil || strings.Contains(err.Error(), "cr3t") {
			t.Errorf("with a wrong password: %v", err)
		}
	})
}

func TestServerOpenTLS(t *testing.T) {
	redistest.RunOptions(t, redistest.Options{TLS: true}, func(t *testing.T, s *redistest.Server) {
		useLocks(t, s.URL(), lockwire.Config{Conn: func(cfg *conn.Config) { cfg.TLS = s.TLSConfig() }})
	})
}

func TestServerOpenSentinel(t *testing.T) {
	s := redistest.StartSentinels(t, redistest.Options{})
	sentinel := s.Config().Sentinel
	useLocks(t, "redis-sentinel://"+strings.Join(sentinel.Addrs, ",")+"/"+sentinel.Master, lockwire.Config{})
}

func TestServerOpenCluster(t *testing.T) {
	s := redistest.StartCluster(t, redistest.Options{Password: "s3cr3t"})
	c := useLocks(t, "redis-cluster://:s3cr3t@"+strings.Join(s.Addrs(), ","), lockwire.Config{
		Conn: func(cfg *conn.Config) { cfg.ClientName = "opened" },
	})
	if _, ok := c.Server().(*cluster.Cluster); !ok {
		t.Errorf("Server() is a %T", c.Server())
	}
	if list, err := s.Masters()[0].Do("CLIENT", "LIST").Text(); !strings.Contains(list, "name=opened") {
		t.Errorf("no connection of a node has the name set by Conn: %s, %v", list, err)
	}
}

// useLocks opens a Client that is closed at the end of the test, and takes locks of all slots and kinds.
func useLocks(t *testing.T, url string, cfg lockwire.Config) *lockwire.Client {
	t.Helper()
	c, err := lockwire.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	nothing := func(context.Context) error { return nil }
	for i := range 10 {
		if err := c.Reentrant(fmt.Sprint("job:", i)).Do(t.Context(), nothing); err != nil {
			t.Error(err)
		}
	}
	if err := c.Fenced("fenced").Do(t.Context(), nothing); err != nil {
		t.Error(err)
	}
	if _, err := c.PermitSemaphore("permits").TrySetPermits(t.Context(), 2); err != nil {
		t.Error(err)
	}
	return c
}

func TestServerLogger(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	logger, own := &warnings{}, &warnings{}
	for name, cfg := range map[string]lockwire.Config{
		"both":  {Logger: logger},
		"locks": {Logger: own, Lock: lock.Config{Logger: logger}},
	} {
		cfg.Conn = func(c *conn.Config) {
			if c.Logger != cfg.Logger {
				t.Errorf("%s: the connection has the logger %v, want %v", name, c.Logger, cfg.Logger)
			}
		}
		c, err := lockwire.Open(t.Context(), srv.URL(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reentrant("job").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: Close() = %v", name, err)
		}
		if logger.take() == 0 || own.take() != 0 {
			t.Errorf("%s: the loss of a lock did not go to the logger of the locks", name)
		}
	}
}

func TestServerClose(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	for name, closing := range map[string]func(*lockwire.Client) error{
		"Close":        (*lockwire.Client).Close,
		"CloseContext": func(c *lockwire.Client) error { return c.CloseContext(t.Context()) },
	} {
		c, err := lockwire.Open(t.Context(), srv.URL(), lockwire.Config{})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := c.Reentrant("job" + name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := closing(c); err != nil {
				t.Errorf("%s() = %v", name, err)
			}
		}
		if _, err := c.Server().Send(t.Context(), resp.Cmd("PING")); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("%s: the connection is open: %v", name, err)
		}
		if err := lease.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%s: lease.Err() = %v, want ErrLost", name, err)
		}
	}
}

// warnings is a Logger that counts.
type warnings struct{ n atomic.Int32 }

func (w *warnings) Warn(string, ...any) { w.n.Add(1) }

func (w *warnings) take() int32 { return w.n.Swap(0) }
