//go:build !lockwire_notls

package conn

import (
	"context"
	"crypto/tls"
	"net"
)

// TLSConfig is tls.Config. In a build without TLS it is another type: see the package comment.
type TLSConfig = tls.Config

// errPlain is the error of a TLS handshake with a server that answered in plain text.
var errPlain error = tls.RecordHeaderError{Msg: "the server answers in plain text"}

func withTLS() (*TLSConfig, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }

// noTLS returns an error if c asks for TLS in a build without TLS.
func noTLS(*TLSConfig) error { return nil }

func secure(ctx context.Context, nc net.Conn, c *TLSConfig) (net.Conn, error) {
	tc := tls.Client(nc, c)
	return tc, tc.HandshakeContext(ctx)
}
