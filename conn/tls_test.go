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
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

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
