//go:build lockwire_notls

package notls_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

func TestTLSIsRefused(t *testing.T) {
	for _, url := range []string{"rediss://host", "valkeys://host", "rediss-sentinel://host/master", "redis-sentinel://host/master?sentinel_tls=true"} {
		if _, err := conn.ParseURL(url); err == nil || !strings.Contains(err.Error(), "built without TLS") {
			t.Errorf("ParseURL(%q) = %v", url, err)
		}
	}
	some := &conn.TLSConfig{ServerName: "host"}
	for _, cfg := range []conn.Config{
		{Addr: "host:6379", TLS: some},
		{Sentinel: conn.Sentinel{Addrs: []string{"host:26379"}, Master: "master", TLS: some}},
	} {
		if _, err := conn.New(cfg); err == nil || !strings.Contains(err.Error(), "built without TLS") {
			t.Errorf("New() = %v", err)
		}
	}
}

func TestWithoutTLSItWorks(t *testing.T) {
	srv := fakeredis.New()
	defer srv.Close()
	pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Do(context.Background(), "SET", "key", "value"); err != nil {
		t.Error(err)
	}
}

// Nothing of TLS is linked.
func TestNoTLSIsLinked(t *testing.T) {
	const module = "github.com/lockwire/lockwire/"
	deps, err := exec.Command("go", "list", "-tags=lockwire_notls", "-deps", module+"conn", module+"cluster", module+"pubsub", module+"lock").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(deps)) {
		if name == "crypto/tls\n" {
			t.Error("a package imports crypto/tls")
		}
	}
}
