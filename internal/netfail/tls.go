//go:build !lockwire_notls

package netfail

import (
	"crypto/tls"
	"errors"
)

// NotTLS reports whether the peer does not speak TLS.
func NotTLS(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// badCertificate reports whether the peer's certificate does not verify.
func badCertificate(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
