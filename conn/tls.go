//go:build !lockwire_notls

package conn

import (
	"crypto/tls"
	"errors"
	"net"
)

// TLSConfig is tls.Config, unless this is a build without TLS: see the package's comment.
type TLSConfig = tls.Config

// withTLS returns what a URL that asks for TLS means.
func withTLS() (*TLSConfig, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }

// noTLS returns an error if c asks for what this build does not have.
func noTLS(*TLSConfig) error { return nil }

// tlsClient returns the client's side of a TLS connection over nc, before its handshake.
func tlsClient(nc net.Conn, c *TLSConfig) secured { return tls.Client(nc, c) }

// beneath returns the connection that nc encrypts, or nc if it does not encrypt.
func beneath(nc net.Conn) net.Conn {
	if t, ok := nc.(*tls.Conn); ok {
		return t.NetConn()
	}
	return nc
}

// notTLS reports whether err says that the peer does not speak TLS.
func notTLS(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// badCertificate reports whether err says that the peer's certificate will not do.
func badCertificate(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
