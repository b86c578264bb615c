package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
)

func TestParseURL(t *testing.T) {
	cfg, err := cluster.ParseURL("redis-cluster://app:p%40ss@h1:7000,h2,[2001:db8::1]:7002/0?timeout=2s&max_redirects=3&refresh_interval=10s&conns=2")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"h1:7000", "h2:6379", "[2001:db8::1]:7002"}; !slices.Equal(cfg.Addrs, want) {
		t.Errorf("Addrs = %q, want %q", cfg.Addrs, want)
	}
	n := cfg.Node
	if n.Username != "app" || n.Password != "p@ss" || n.Timeout != 2*time.Second || n.Conns != 2 || n.TLS != nil || n.Addr != "" {
		t.Errorf("Node = %+v", n)
	}
	if cfg.MaxRedirects != 3 || cfg.RefreshInterval != 10*time.Second {
		t.Errorf("MaxRedirects = %d, RefreshInterval = %v", cfg.MaxRedirects, cfg.RefreshInterval)
	}
	if text := fmt.Sprintf("%v %#v", cfg, cfg); strings.Contains(text, "p@ss") || !strings.Contains(text, "redis-cluster://app@h1:7000,h2:6379") {
		t.Errorf("printed: %s", text)
	}
	for scheme, tls := range map[string]bool{"redis-cluster": false, "valkey-cluster": false, "rediss-cluster": true,
		"valkeys-cluster": true, "REDIS-CLUSTER": false} {
		cfg, err := cluster.ParseURL(scheme + "://h:1")
		if err != nil || (cfg.Node.TLS != nil) != tls {
			t.Errorf("%s: TLS %v, %v", scheme, cfg.Node.TLS != nil, err)
		}
	}
	if cfg, err := cluster.ParseURL("rediss-cluster://h:1?tls_server_name=name"); err != nil || cfg.Node.TLS.ServerName != "name" {
		t.Errorf("tls_server_name: %v", err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, s := range []string{
		"", "redis://s3cr3t@h:1", "redis-cluster:h:1", "redis-cluster://h:1,h:x", "redis-cluster://u:s3cr3t@h:99999",
		"redis-cluster://u:s3cr3t@h:1/1", "redis-cluster://h:1?db=1", "redis-cluster://h:1?unknown=s3cr3t", "redis-cluster://h:1?max_redirects=s3cr3t",
		"redis-cluster://h:1?max_redirects=1&max_redirects=2", "redis-cluster://h:1?refresh_interval=5", "redis-cluster://u:s3cr/3t@h:1",
		"redis-cluster://u:s3cr#3t@h:1", "redis-cluster://u:s3%zz@h:1", "redis-cluster://h:1?timeout=1s&timeout=2s", "redis-cluster://[::1:5",
	} {
		cfg, err := cluster.ParseURL(s)
		if err == nil {
			t.Errorf("%q: accepted: %v", s, cfg)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "cluster: ") || strings.Contains(text, "s3cr") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestParseURLSaysWhatToWrite(t *testing.T) {
	for url, want := range map[string]string{
		"":                                  "cluster: url: the URL is empty: write redis-cluster://host:6379",
		"redis://u:s3cr3t@h":                "the scheme is for a single server: write redis-cluster://host:6379, or use conn.ParseURL",
		"redis://h?read_timeout=3s":         "the scheme is for a single server: write redis-cluster://host:6379",
		"Redis-Sentinel://h":                "the scheme is for a single server: write redis-cluster://host:6379",
		"h:6379":                            "scheme is not redis-cluster, rediss-cluster, valkey-cluster or valkeys-cluster: write",
		"redis-cluster://h?read_timeout=1s": `unknown parameter "read_timeout": write timeout`,
		"redis-cluster://h?addr=h:1":        `unknown parameter "addr": write the hosts with commas`,
	} {
		if _, err := cluster.ParseURL(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("ParseURL(%q) = %v, want an error with %q", url, err, want)
		}
	}
}
