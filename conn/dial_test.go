package conn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// mutes are peers that stop answering at different steps of a dial.
var mutes = []struct {
	name string
	cfg  func(t testing.TB) conn.Config
}{
	{"credentials", func(t testing.TB) conn.Config {
		cfg := scripted(t)
		cfg.Credentials = func(ctx context.Context) (string, string, error) {
			<-ctx.Done()
			return "", "", errors.New("the vault is slow")
		}
		return cfg
	}},
	{"connect", func(t testing.TB) conn.Config {
		return conn.Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: errors.New("i/o timeout")}
		}}
	}},
	{"TLS that never reads", func(t testing.TB) conn.Config {
		cfg := scripted(t, func(p *peer) { p.mute(0) })
		cfg.TLS = &tls.Config{ServerName: "redis.example"}
		return cfg
	}},
	{"TLS that never answers", func(t testing.TB) conn.Config {
		cfg := scripted(t, func(p *peer) { p.mute(1) })
		cfg.TLS = &tls.Config{ServerName: "redis.example"}
		return cfg
	}},
	{"handshake never read", func(t testing.TB) conn.Config {
		return scripted(t, func(p *peer) { p.mute(0) })
	}},
	{"handshake never answered", func(t testing.TB) conn.Config {
		return scripted(t, func(p *peer) { p.mute(1) })
	}},
	{"handshake answered in part", func(t testing.TB) conn.Config {
		return scripted(t, func(p *peer) {
			p.written()
			p.reply(hello3, "+OK|", "+O")
			p.expectClose()
		})
	}},
	{"fallback never answered", func(t testing.TB) conn.Config {
		return scripted(t, func(p *peer) {
			p.written()
			p.reply("-NOPROTO|", "-ERR|", "-ERR|")
			p.mute(1)
		})
	}},
}

// mute reads n writes of the client, and then waits for the client to close.
func (p *peer) mute(reads int) {
	for range reads {
		p.written()
	}
	<-p.closed
}

// TestDialMute: a dial to a silent peer ends exactly with its ctx or DialTimeout, and closes its connection. (B21)
func TestDialMute(t *testing.T) {
	ends := []struct {
		name string
		ctx  func(ctx context.Context) (context.Context, context.CancelFunc)
		cfg  func(cfg *conn.Config)
		want error
		text string
	}{
		{name: "deadline", want: context.DeadlineExceeded,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 200*time.Millisecond)
			}},
		{name: "cancel", want: context.Canceled,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				stop := time.AfterFunc(200*time.Millisecond, func() { cancel(errNoMore) })
				return ctx, func() { stop.Stop(); cancel(nil) }
			}, text: errNoMore.Error()},
		{name: "DialTimeout", want: context.DeadlineExceeded, cfg: func(cfg *conn.Config) {
			cfg.DialTimeout = 200 * time.Millisecond
			dial, dialled := cfg.Dial, false
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dialled {
					return nil, errNoMore // for the probe in plain text
				}
				dialled = true
				return dial(ctx, network, addr)
			}
		}, text: "DialTimeout"},
	}
	for _, mute := range mutes {
		for _, end := range ends {
			t.Run(mute.name+"/"+end.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg, ctx := mute.cfg(t), t.Context()
					if end.cfg != nil {
						end.cfg(&cfg)
					}
					if end.ctx != nil {
						var cancel context.CancelFunc
						ctx, cancel = end.ctx(ctx)
						defer cancel()
					}
					start := time.Now()
					err := refused(t, ctx, cfg)
					if took := time.Since(start); took != 200*time.Millisecond {
						t.Errorf("DialStream took %v, want 200ms", took)
					}
					if !errors.Is(err, end.want) || !strings.Contains(err.Error(), end.text) {
						t.Errorf("DialStream = %v, want %v with %q", err, end.want, end.text)
					}
				})
			})
		}
	}
}

var errNoMore = errors.New("the caller has gone home")

func TestDialDefaultLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		refused(t, t.Context(), scripted(t, func(p *peer) { p.mute(1) }))
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("DialStream took %v, want 5s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := scripted(t, func(p *peer) {
			time.Sleep(time.Hour)
			p.welcome()
			p.answerPing()
		})
		cfg.DialTimeout = -1
		s := open(t, cfg)
		ping(t, s)
		s.Close()
	})
}

// TestDialLetsGo: after dial returns, neither its ctx nor its time limit affects the connection.
func TestDialLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := scripted(t, func(p *peer) {
			p.welcome()
			p.answerPing()
		})
		ctx, cancel := context.WithCancel(t.Context())
		s, err := conn.DialStream(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour)
		ping(t, s)
		s.Close()
	})
}

// slowConn takes a second to close.
type slowConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *slowConn) Close() error {
	err := c.Conn.Close()
	time.Sleep(time.Second)
	c.closed.Store(true)
	return err
}

// TestDialJoins: a dial returns after its ctx has ended only when all its goroutines have ended.
func TestDialJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := scripted(t, func(p *peer) { p.mute(1) })
		inner, slow := cfg.Dial, &slowConn{}
		cfg.Dial = func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
			slow.Conn, err = inner(ctx, network, addr)
			return slow, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refused(t, ctx, cfg)
		if !slow.closed.Load() {
			t.Error("DialStream returned while its connection was being closed")
		}
	})
}

func TestDialCredentials(t *testing.T) {
	script := func(n int) func(p *peer) {
		return func(p *peer) {
			p.expect(fmt.Sprintf("HELLO 3 AUTH user%d %s", n, secret), libName, libVersion)
			p.reply(hello3, "+OK|", "+OK|")
			p.answerPing()
		}
	}
	cfg := scripted(t, script(1), script(2))
	cfg.Username, cfg.Password = "nobody", "nothing"
	asked := 0
	cfg.Credentials = func(ctx context.Context) (string, string, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("Credentials was asked without a limit")
		}
		asked++
		return fmt.Sprint("user", asked), secret, nil
	}
	for range 2 {
		s := open(t, cfg)
		ping(t, s)
		s.Close()
	}
	errVault := errors.New("the vault is shut")
	cfg.Credentials = func(context.Context) (string, string, error) { return "", "", errVault }
	if err := refused(t, t.Context(), cfg); !errors.Is(err, errVault) {
		t.Errorf("DialStream = %v, want %v", err, errVault)
	}
}

func TestDialFails(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	err = refused(t, t.Context(), conn.Config{Addr: closed.Addr().String(), Password: secret})
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), closed.Addr().String()) {
		t.Errorf("DialStream to a closed port = %v, want ECONNREFUSED and the address", err)
	}
	path := filepath.Join(t.TempDir(), "none.sock")
	err = refused(t, t.Context(), conn.Config{Network: "unix", Addr: path})
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("DialStream to no socket = %v, want ENOENT", err)
	}
	cfg := conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, nil }}
	refused(t, t.Context(), cfg)
	if _, err := conn.DialStream(t.Context(), conn.Config{DB: -1}); err == nil {
		t.Error("DialStream of an invalid Config succeeded")
	}
}

// TestDialHook: Config.Dial gets the network and address of the Config, with defaults.
func TestDialHook(t *testing.T) {
	for _, tt := range []struct{ cfg, want conn.Config }{
		{conn.Config{}, conn.Config{Network: "tcp", Addr: "127.0.0.1:6379"}},
		{conn.Config{Network: "unix", Addr: "/x"}, conn.Config{Network: "unix", Addr: "/x"}},
		{conn.Config{Network: "memory", Addr: "x"}, conn.Config{Network: "memory", Addr: "x"}},
	} {
		tt.cfg.Dial = func(_ context.Context, network, addr string) (net.Conn, error) {
			if network != tt.want.Network || addr != tt.want.Addr {
				t.Errorf("Dial(%q, %q), want (%q, %q)", network, addr, tt.want.Network, tt.want.Addr)
			}
			return nil, errNoMore
		}
		if err := refused(t, t.Context(), tt.cfg); !errors.Is(err, errNoMore) {
			t.Errorf("DialStream = %v, want %v", err, errNoMore)
		}
	}
}

// listen serves one connection on a listener with a script.
func listen(t *testing.T, network, addr string, script func(p *peer)) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		script(&peer{Conn: nc, t: t})
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln
}

func TestDialNetworks(t *testing.T) {
	script := func(p *peer) {
		p.welcome()
		p.answerPing()
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = filepath.Join(t.TempDir(), "s")
			}
			ln := listen(t, network, addr, script)
			cfg := conn.Config{Network: network, Addr: ln.Addr().String()}
			s := open(t, cfg)
			if s.Addr() != cfg.Addr {
				t.Errorf("Addr() = %q, want %q", s.Addr(), cfg.Addr)
			}
			ping(t, s)
			s.Close()
		})
	}
}

// TestDialTurnedAway: the error reply of a server that closes before reading reaches the caller. (B40)
func TestDialTurnedAway(t *testing.T) {
	ln := listen(t, "tcp", "127.0.0.1:0", func(p *peer) { p.reply("-ERR max number of clients reached|") })
	err := refused(t, t.Context(), conn.Config{Addr: ln.Addr().String()})
	if want := resp.Error("ERR max number of clients reached"); !errors.Is(err, resp.ErrGeneral) ||
		!strings.Contains(err.Error(), want.Error()) {
		t.Errorf("DialStream = %v, want %v", err, want)
	}
}

// authority issues certificates for one test.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign signs a certificate with the authority's key, or with the certificate's own key without one.
func (a *authority) sign(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

// issue makes a certificate for the given names and addresses, for servers and clients.
func (a *authority) issue(names ...string) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, cert := a.sign(template)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// overTLS runs a script inside TLS.
func overTLS(cfg *tls.Config, script func(p *peer)) func(p *peer) {
	return func(p *peer) {
		tc := tls.Server(p.Conn, cfg)
		if tc.Handshake() == nil {
			script(&peer{Conn: tc, t: p.t})
		}
	}
}

func welcomePing(p *peer) {
	p.welcome()
	p.answerPing()
}

// TestTLSServerName: the certificate must name the host of Addr, unless the tls.Config names another server. The
// caller's Config does not change.
func TestTLSServerName(t *testing.T) {
	ca := newAuthority(t)
	server := &tls.Config{Certificates: []tls.Certificate{ca.issue("redis.example", "10.0.0.9", "fe80::1")}}
	tests := []struct {
		network, addr, serverName string
		ok                        bool
	}{
		{"tcp", "redis.example:6379", "", true},
		{"tcp", "10.0.0.9:6379", "", true},
		{"tcp", "[fe80::1%eth0]:6379", "", true},
		{"tcp", "10.0.0.10:6379", "redis.example", true},
		{"unix", "/run/redis.sock", "redis.example", true},
		{"tcp", "10.0.0.10:6379", "", false},
		{"tcp", "other.example:6379", "", false},
		{"tcp", "redis.example:6379", "other.example", false},
	}
	for _, tt := range tests {
		t.Run(tt.addr+" "+tt.serverName, func(t *testing.T) {
			// On a connection in memory the client could not send its alert while the server writes.
			ln := listen(t, "tcp", "127.0.0.1:0", overTLS(server, welcomePing))
			cfg := conn.Config{Network: tt.network, Addr: tt.addr}
			cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
			}
			cfg.TLS = &tls.Config{RootCAs: ca.pool(), ServerName: tt.serverName}
			if tt.ok {
				s := open(t, cfg)
				ping(t, s)
				s.Close()
			} else if err := refused(t, t.Context(), cfg); !isCertificateError(err) {
				t.Errorf("DialStream = %v, want the certificate refused", err)
			}
			if cfg.TLS.ServerName != tt.serverName {
				t.Errorf("the caller's ServerName became %q", cfg.TLS.ServerName)
			}
		})
	}
}

func isCertificateError(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// TestTLSClientCertificate: the server accepts a client certificate, fixed or requested at each dial.
func TestTLSClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	server := &tls.Config{
		Certificates: []tls.Certificate{ca.issue("redis.example")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.pool(),
	}
	cert := ca.issue("client")
	tests := []struct {
		name string
		cfg  *tls.Config
		ok   bool
	}{
		{"given", &tls.Config{Certificates: []tls.Certificate{cert}}, true},
		{"asked for", &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &cert, nil
		}}, true},
		{"none", &tls.Config{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln := listen(t, "tcp", "127.0.0.1:0", overTLS(server, welcomePing))
			cfg := conn.Config{Addr: ln.Addr().String(), TLS: tt.cfg.Clone()}
			cfg.TLS.RootCAs, cfg.TLS.ServerName = ca.pool(), "redis.example"
			if !tt.ok {
				refused(t, t.Context(), cfg)
				return
			}
			s := open(t, cfg)
			ping(t, s)
			s.Close()
		})
	}
}

// TestTLSAgainstPlain: the error names the likely cause if only one side uses TLS. (B22)
func TestTLSAgainstPlain(t *testing.T) {
	ca := newAuthority(t)
	tests := []struct {
		name    string
		tls     *tls.Config
		scripts []func(p *peer)
		check   func(err error) bool
	}{
		{"TLS to a plain server", &tls.Config{ServerName: "x"}, []func(p *peer){func(p *peer) {
			p.written()
			p.reply("-ERR unknown command|")
		}}, func(err error) bool {
			_, ok := errors.AsType[tls.RecordHeaderError](err)
			return ok
		}},
		{"plain to a TLS server that closes", nil,
			[]func(p *peer){overTLS(&tls.Config{Certificates: []tls.Certificate{ca.issue("x")}}, welcomePing),
				overTLS(&tls.Config{Certificates: []tls.Certificate{ca.issue("x")}}, welcomePing),
				overTLS(&tls.Config{Certificates: []tls.Certificate{ca.issue("x")}}, welcomePing)},
			func(err error) bool { return errors.Is(err, netfail.ErrExpectsTLS) }},
		{"plain to a server that hangs up", nil, []func(p *peer){askedForTLS, askedForTLS, askedForTLS},
			func(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, netfail.ErrExpectsTLS) }},
		{"plain to a TLS server with an alert", nil, []func(p *peer){func(p *peer) {
			p.written()
			p.reply("\x15\x03\x01\x00\x02\x02\x46")
		}}, func(err error) bool {
			_, ok := errors.AsType[*resp.SyntaxError](err)
			return ok
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a slow handshake starts the probe in plain text
				cfg := scripted(t, tt.scripts...)
				cfg.TLS, cfg.Password = tt.tls, secret
				err := refused(t, t.Context(), cfg)
				if !tt.check(err) || !strings.Contains(err.Error(), "expect") || !strings.Contains(err.Error(), "TLS") {
					t.Errorf("DialStream = %v, want the cause with a hint at TLS", err)
				}
			})
		})
	}
}

// TestTLSHungUp: a dial under TLS does not ask whether the server that hangs up expects TLS.
func TestTLSHungUp(t *testing.T) {
	ca := newAuthority(t)
	hangsUp := overTLS(&tls.Config{Certificates: []tls.Certificate{ca.issue("redis.example")}}, func(p *peer) { p.written() })
	cfg := scripted(t, hangsUp, hangsUp) // the second dial is without HELLO
	cfg.Addr, cfg.TLS = "redis.example:6379", &tls.Config{RootCAs: ca.pool()}
	if err := refused(t, t.Context(), cfg); !errors.Is(err, io.EOF) || errors.Is(err, netfail.ErrExpectsTLS) {
		t.Errorf("DialStream = %v, want EOF", err)
	}
}

// TestTLSClose: a peer that stopped reading delays neither Close nor the end of a Write.
func TestTLSClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		server := &tls.Config{Certificates: []tls.Certificate{ca.issue("redis.example")}}
		stuck := func() *conn.Stream {
			cfg := scripted(t, func(p *peer) {
				overTLS(server, func(inner *peer) { inner.welcome() })(p)
				p.mute(0)
			})
			cfg.Addr, cfg.TLS = "redis.example:6379", &tls.Config{RootCAs: ca.pool()}
			return open(t, cfg)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, start := stuck(), time.Now()
		checkWriteError(t, s.Write(ctx, resp.Cmd("PING")), false, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Write took %v, want 1s", took)
		}
		s, start = stuck(), time.Now()
		s.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
	})
}
