//go:build !lockwire_notls

package conn

import (
	"crypto/tls"
	"net"
)

// TLSConfig is tls.Config, unless this is a build without TLS: see the package's comment.
type TLSConfig = tls.Config

// errPlain is the error of a TLS handshake with a server that has answered without TLS.
var errPlain error = tls.RecordHeaderError{Msg: "the server answers in plain text"}

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
