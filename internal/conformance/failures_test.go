package conformance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// failures are why a dial fails, and whether that is final: then every package says so at once, and otherwise they try again.
var failures = []struct {
	name  string
	final bool
	setUp func(t *testing.T, srv *fakeredis.Server, cfg *conn.Config)
	cause func(err error) bool
}{
	{"a certificate that does not verify", true, func(t *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.TLS(&tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
		cfg.TLS = &tls.Config{ServerName: "redis.example", RootCAs: x509.NewCertPool()}
	}, is[*tls.CertificateVerificationError]},
	{"a plain server asked for TLS", true, func(_ *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		cfg.TLS = &tls.Config{ServerName: "redis.example"}
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			return &plain{Conn: nc}, err
		}
	}, is[tls.RecordHeaderError]},
	{"a plain server asked for TLS that waits for the end of a line", true, func(_ *testing.T, _ *fakeredis.Server, cfg *conn.Config) {
		cfg.TLS = &tls.Config{ServerName: "redis.example"}
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			return &inline{Conn: nc}, err
		}
	}, is[tls.RecordHeaderError]},
	{"a TLS server asked without TLS", true, func(t *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.TLS(&tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
	}, says(netfail.ErrExpectsTLS)},
	{"a server that hangs up", false, func(t *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Close() })
	}, nil},
	{"a silent server asked for TLS", false, func(_ *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.Mute(true)
		cfg.TLS = &tls.Config{ServerName: "redis.example"}
	}, nil},
	{"an alert of TLS", true, func(t *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.TLS(&tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, ClientAuth: tls.RequireAnyClientCert})
		cfg.TLS = &tls.Config{InsecureSkipVerify: true}
	}, is[*net.OpError]},
	{"WRONGPASS", true, func(_ *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.User("default", "right")
		cfg.Password = "wrong"
	}, says(resp.ErrWrongPass)},
	{"NOAUTH", true, func(_ *testing.T, srv *fakeredis.Server, cfg *conn.Config) {
		srv.User("default", "right")
	}, says(resp.ErrNoAuth)},
	{"NOPERM", true, answers("-NOPERM no"), says(resp.ErrNoPerm)},
	{"DENIED", true, answers("-DENIED no"), says(resp.Error("DENIED"))},
	{"ERR invalid password", true, answers("-ERR invalid password"), says(resp.ErrGeneral)},
	{"not RESP", true, answers("HTTP/1.1 400 Bad Request"), is[*resp.SyntaxError]},
	{"connection refused", false, func(_ *testing.T, srv *fakeredis.Server, cfg *conn.Config) { srv.Refuse(true) }, says(syscall.ECONNREFUSED)},
	{"LOADING", false, answers("-LOADING Redis is loading the dataset in memory"), says(resp.ErrLoading)},
	{"MASTERDOWN", false, answers("-MASTERDOWN Link with MASTER is down"), says(resp.ErrMasterDown)},
	{"BUSY", false, answers("-BUSY Redis is busy running a script"), says(resp.ErrBusy)},
	{"max clients", false, answers("-ERR max number of clients reached"), says(resp.ErrGeneral)},
}

// askers are how each package asks for a connection.
var askers = []struct {
	name string
	ask  func(ctx context.Context, cfg conn.Config) error
}{
	{"conn.Open", func(ctx context.Context, cfg conn.Config) error {
		p, err := conn.Open(ctx, cfg)
		if err == nil {
			err = p.Close()
		}
		return err
	}},
	{"Pool.Do", inPool(func(ctx context.Context, p *conn.Pool) error { _, err := p.Do(ctx, "PING"); return err })},
	{"Pool.With", inPool(func(ctx context.Context, p *conn.Pool) error {
		return p.With(ctx, func(*conn.Conn) error { return nil })
	})},
	{"cluster.Open", func(ctx context.Context, cfg conn.Config) error {
		c, err := cluster.Open(ctx, cluster.Config{Addrs: []string{"127.0.0.1:6379"}, Node: cfg})
		if err == nil {
			err = c.Close()
		}
		return err
	}},
	{"pubsub.Subscribe", inPool(func(ctx context.Context, p *conn.Pool) error {
		s := pubsub.New(p, pubsub.Config{})
		defer s.Close()
		_, err := s.Subscribe(ctx, "channel")
		return err
	})},
	{"lock.Lock", inLocks(func(ctx context.Context, c *lock.Client) error {
		_, err := c.Reentrant("job").Lock(ctx)
		return err
	})},
	{"lock.TryLock", inLocks(func(ctx context.Context, c *lock.Client) error {
		_, err := c.Reentrant("job").TryLock(ctx)
		return err
	})},
	{"lock.Fair", inLocks(func(ctx context.Context, c *lock.Client) error {
		_, err := c.Fair("job").Lock(ctx)
		return err
	})},
	{"lock.Semaphore", inLocks(func(ctx context.Context, c *lock.Client) error {
		return c.Semaphore("job").Acquire(ctx, 1)
	})},
	{"lock.CountDownLatch", inLocks(func(ctx context.Context, c *lock.Client) error {
		return c.CountDownLatch("job").Wait(ctx)
	})},
	{"lock.Multi", inLocks(func(ctx context.Context, c *lock.Client) error {
		m, err := lock.NewMulti(c.Reentrant("a"), c.Reentrant("b"))
		if err == nil {
			_, err = m.Lock(ctx)
		}
		return err
	})},
	{"lock.FasterMulti", inLocks(func(ctx context.Context, c *lock.Client) error {
		_, err := c.FasterMulti("jobs", "a", "b").Lock(ctx)
		return err
	})},
	{"lock.Watch", inLocks(func(ctx context.Context, c *lock.Client) error {
		for _, err := range c.Watch(ctx, "") {
			if err != nil {
				return err
			}
		}
		return nil
	})},
	{"leader.Run", inLocks(func(ctx context.Context, c *lock.Client) error {
		return leader.Run(ctx, c, "job", leader.Config{}, func(context.Context) error { return nil })
	})},
}

// TestFailures has all packages meet all failures: they decide alike.
func TestFailures(t *testing.T) {
	for _, f := range failures {
		for _, a := range askers {
			t.Run(fmt.Sprintf("%s/%s", f.name, a.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := fakeredis.New()
					defer srv.Close()
					cfg := conn.Config{Dial: srv.Dial}
					f.setUp(t, srv, &cfg)
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					defer cancel()
					start := time.Now()
					err := a.ask(ctx, cfg)
					took := time.Since(start)
					switch {
					case err == nil:
						t.Fatal("no error")
					case f.final && (took > time.Second || srv.Dials() > 3):
						t.Errorf("after %v and %d dials: %v; want at once", took, srv.Dials(), err)
					case !f.final && (took < 100*time.Millisecond || srv.Dials() < 3):
						t.Errorf("after %v and %d dials: %v; want more attempts", took, srv.Dials(), err)
					}
					if f.final && !f.cause(err) {
						t.Errorf("%v does not hold its cause", err)
					}
				})
			})
		}
	}
}

func inPool(ask func(ctx context.Context, p *conn.Pool) error) func(ctx context.Context, cfg conn.Config) error {
	return func(ctx context.Context, cfg conn.Config) error {
		p, err := conn.New(cfg)
		if err != nil {
			return err
		}
		defer p.Close()
		return ask(ctx, p)
	}
}

func inLocks(ask func(ctx context.Context, c *lock.Client) error) func(ctx context.Context, cfg conn.Config) error {
	return inPool(func(ctx context.Context, p *conn.Pool) error {
		c, err := lock.New(p, lock.Config{})
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(ctx, c)
	})
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func says(cause error) func(err error) bool {
	return func(err error) bool { return errors.Is(err, cause) }
}

// answers has a server answer every HELLO so.
func answers(text string) func(*testing.T, *fakeredis.Server, *conn.Config) {
	return func(_ *testing.T, srv *fakeredis.Server, _ *conn.Config) {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "HELLO" {
				return fakeredis.Reply(text + "\r\n")
			}
			return fakeredis.Run()
		})
	}
}

// plain is a connection whose server answers as one without TLS does.
type plain struct{ net.Conn }

func (*plain) Write(b []byte) (int, error) { return len(b), nil }
func (*plain) Read(b []byte) (int, error)  { return copy(b, "-ERR unknown command\r\n"), nil }

// inline is a connection whose server answers a PING and waits for more of anything else.
type inline struct {
	net.Conn
	asked bool
}

func (c *inline) Write(b []byte) (int, error) {
	c.asked = string(b) == "PING\r\n"
	return len(b), nil
}

func (c *inline) Read(b []byte) (int, error) {
	if !c.asked {
		return c.Conn.Read(b)
	}
	return copy(b, "+PONG\r\n"), nil
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"redis.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
