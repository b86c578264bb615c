//go:build lockwire_notls

package netfail

// NotTLS is false in a build without TLS.
func NotTLS(error) bool { return false }

func badCertificate(error) bool { return false }
