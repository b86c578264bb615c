package conn_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// openConns counts the connections that are open at once.
type openConns struct {
	mu        sync.Mutex
	open, top int
}

func (o *openConns) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += n
	o.top = max(o.top, o.open)
}

func (o *openConns) most() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.top
}

// dial returns a Config.Dial of connections whose Close takes time, as that of a tunnel does.
func (o *openConns) dial(srv *fakeredis.Server) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := srv.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		o.add(1)
		return &slowClose{Conn: nc, closed: func() { o.add(-1) }}, nil
	}
}

type slowClose struct {
	net.Conn
	closing sync.Once
	closed  func()
}

func (c *slowClose) Close() error {
	c.closing.Do(func() {
		time.Sleep(5 * time.Millisecond)
		c.closed()
	})
	return c.Conn.Close()
}

// TestMaxConnsWhileClosing: a connection counts until it is closed, whatever the reason for closing it.
func TestMaxConnsWhileClosing(t *testing.T) {
	const most = 3
	sleep := time.Sleep
	for name, test := range map[string]struct {
		cfg conn.Config
		use func(srv *fakeredis.Server, c *conn.Conn)
		end func(srv *fakeredis.Server) // after each use
	}{
		"changed": {conn.Config{}, func(_ *fakeredis.Server, c *conn.Conn) { _, _ = c.Do(context.Background(), "MULTI") }, nil},
		"aged":    {conn.Config{MaxAge: time.Second}, func(*fakeredis.Server, *conn.Conn) { sleep(2 * time.Second) }, nil},
		"lost": {conn.Config{}, func(srv *fakeredis.Server, _ *conn.Conn) {
			srv.KillConns(nil)
			sleep(time.Millisecond)
		}, nil},
		"idle": {conn.Config{IdleTimeout: 20 * time.Millisecond}, func(*fakeredis.Server, *conn.Conn) { sleep(10 * time.Millisecond) },
			func(*fakeredis.Server) { sleep(32 * time.Millisecond) }},
		"idle and lost": {conn.Config{}, func(*fakeredis.Server, *conn.Conn) { sleep(10 * time.Millisecond) },
			func(srv *fakeredis.Server) {
				sleep(20 * time.Millisecond)
				srv.KillConns(nil)
				sleep(time.Millisecond)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				var open openConns
				cfg := test.cfg
				cfg.MaxConns, cfg.Dial = most, open.dial(srv)
				p, err := conn.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				var wg sync.WaitGroup
				for range 2 * most {
					wg.Go(func() {
						for range 10 {
							err := p.With(context.Background(), func(c *conn.Conn) error {
								test.use(srv, c)
								return nil
							})
							if err != nil {
								t.Errorf("With = %v", err)
							}
							counts(t, p, most)
							if test.end != nil {
								test.end(srv)
							}
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				if s := counts(t, p, most); s.Lent != 0 || s.Waiting != 0 {
					t.Errorf("Stats at the end = %+v, want nothing lent", s)
				}
				if n := open.most(); n > most {
					t.Errorf("%d connections open at once, MaxConns is %d", n, most)
				}
			})
		})
	}
}

// The server closes a connection while the Pool is at it: the connection counts until the Pool has closed it.
func TestMaxConnsClosedByBoth(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var open openConns
		p, err := conn.New(conn.Config{Dial: open.dial(srv), MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		use := func(cmd ...any) {
			err := p.With(context.Background(), func(c *conn.Conn) error {
				_, err := c.Do(context.Background(), cmd...)
				return err
			})
			if err != nil {
				t.Errorf("With = %v", err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { use("WATCH", "key") }) // changes the connection, which With then closes
		time.Sleep(time.Millisecond)
		srv.KillConns(nil)
		use("GET", "key")
		wg.Wait()
		if n := open.most(); n > 1 {
			t.Errorf("%d connections open at once, MaxConns is 1", n)
		}
	})
}

// A Conn kept by mistake closes no connection that the Pool has lent again.
func TestCloseAfterWith(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		var kept *conn.Conn
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			kept = c
			return nil
		})
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			if err := kept.Close(); err != nil || c.Err() != nil {
				t.Errorf("Close = %v, and the connection of another caller has ended: %v", err, c.Err())
			}
			want(t, c, "PONG", "PING")
			return nil
		})
	})
}

// TestWithAfterTheLent: the lent connection ends while a caller without attempts left waits for it. The caller gets a
// new connection.
func TestWithAfterTheLent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		go p.With(t.Context(), func(c *conn.Conn) error {
			time.Sleep(time.Hour)
			srv.Refuse(false)
			return c.Close()
		})
		synctest.Wait()
		srv.Refuse(true)
		hold(t, p, 0)
		counts(t, p, 16)
	})
}
