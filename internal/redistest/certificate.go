package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// credentials are an authority and two certificates by the authority, all made by this process and for this process alone.
type credentials struct {
	pool           *x509.CertPool
	authority      tls.Certificate
	server, client tls.Certificate
}

var certificates = sync.OnceValues(func() (*credentials, error) {
	authority, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "redistest authority"},
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil)
	if err != nil {
		return nil, err
	}
	server, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest server"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // nodes call each peer
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, &authority)
	if err != nil {
		return nil, err
	}
	client, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest client"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	return &credentials{pool: pool, authority: authority, server: server, client: client}, nil
})

// sign makes a certificate with a new key, signed by parent or, without a parent, by itself.
func sign(template *x509.Certificate, parent *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	issuer, issuerKey := template, any(key)
	if parent != nil {
		issuer, issuerKey = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// writeFiles puts the files for a server into dir, and their names into its configuration.
func (c *credentials) writeFiles(dir string, set func(...string)) error {
	key, err := x509.MarshalPKCS8PrivateKey(c.server.PrivateKey)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		directive, kind string
		der             []byte
	}{
		{"tls-ca-cert-file", "CERTIFICATE", c.authority.Certificate[0]},
		{"tls-cert-file", "CERTIFICATE", c.server.Certificate[0]},
		{"tls-key-file", "PRIVATE KEY", key},
	} {
		path := filepath.Join(dir, f.directive)
		text := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		set(f.directive, path)
	}
	return nil
}
