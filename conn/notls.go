//go:build lockwire_notls

package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// TLSConfig replaces tls.Config in a build without TLS. Setting Config.TLS is then an error.
type TLSConfig struct {
	ServerName         string
	InsecureSkipVerify bool
}

// Clone returns a copy of c.
func (c *TLSConfig) Clone() *TLSConfig {
	clone := *c
	return &clone
}

var errNoTLS = errors.New("this program is built without TLS (build tag lockwire_notls)")

var errPlain = errNoTLS

func withTLS() (*TLSConfig, error) { return nil, errNoTLS }

func noTLS(c *TLSConfig) error {
	if c == nil {
		return nil
	}
	return fmt.Errorf("conn: %w", errNoTLS)
}

func secure(context.Context, net.Conn, *TLSConfig) (net.Conn, error) { return nil, errNoTLS }
