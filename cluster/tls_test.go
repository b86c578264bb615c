package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
)

// TLS checks the certificate of a node against the announced host, not against the result of NodeMap.
func TestNodeMapWithTLS(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		names := map[string]string{"a.example:1": nodeA, "b.example:2": nodeB, "c.example:3": nodeC}
		f.serve(fakeRange{0, 5460, "a.example:1"}, fakeRange{5461, 10922, "b.example:2"}, fakeRange{10923, 16383, "c.example:3"})
		roots := x509.NewCertPool()
		for name, addr := range names {
			cert := selfSigned(t, name[:len("a.example")], "10.0.0.1") // the address of the first node to ask
			roots.AddCert(cert.Leaf)
			f.nodes[addr].TLS(&tls.Config{Certificates: []tls.Certificate{cert}})
		}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto, TLS: &tls.Config{RootCAs: roots}},
			NodeMap: func(addr string) string { return names[addr] }})
		for _, key := range []string{keyA, keyB, keyC} {
			wantText(t, c, "OK", "SET", key, "x")
			if _, err := c.Replicas().Do(t.Context(), "GET", key); err != nil {
				t.Error(err)
			}
		}
	})
}

// selfSigned returns a certificate for a host name and an address.
func selfSigned(t *testing.T, name, ip string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP(ip)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
