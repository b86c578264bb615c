//go:build !lockwire_notls

package cluster

import (
	"crypto/tls"
	"errors"
)

// refusedByTLS reports whether err says that the peer does not speak TLS, or that its certificate will not do.
func refusedByTLS(err error) bool {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
