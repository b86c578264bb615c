package conn_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
)

func TestParseSentinelURL(t *testing.T) {
	withTLS := &tls.Config{MinVersion: tls.VersionTLS12}
	one := conn.Sentinel{Master: "m", Addrs: []string{"s1:26379"}}
	with := func(change func(s *conn.Sentinel)) conn.Sentinel {
		s := one
		change(&s)
		return s
	}
	tests := []struct {
		url  string
		want conn.Config
	}{
		{"redis-sentinel://s1/m", conn.Config{Sentinel: one}},
		{"valkey-sentinel://s1/m/", conn.Config{Sentinel: one}},
		{"Redis-Sentinel://s1:26379/m/2", conn.Config{DB: 2, Sentinel: one}},
		{"redis-sentinel://s1/m?db=2", conn.Config{DB: 2, Sentinel: one}},
		{"redis-sentinel://s1/m/2?db=2", conn.Config{DB: 2, Sentinel: one}},
		{"redis-sentinel:///m", conn.Config{Sentinel: conn.Sentinel{Master: "m", Addrs: []string{"127.0.0.1:26379"}}}},
		{"redis-sentinel://al:p%40%2C@s1:7000,s2,[2001:db8::1]:7001/my%20", conn.Config{}},
		{"redis-sentinel://al:p%40%2C@s1:7000,s2,[2001:db8::1]:7001/mymaster/0", conn.Config{
			Username: "al", Password: "p@,",
			Sentinel: conn.Sentinel{Master: "mymaster", Addrs: []string{"s1:7000", "s2:26379", "[2001:db8::1]:7001"}},
		}},
		{"rediss-sentinel://s1/m", conn.Config{TLS: withTLS, Sentinel: with(func(s *conn.Sentinel) { s.TLS = withTLS })}},
		{"valkeys-sentinel://s1/m?sentinel_tls=false", conn.Config{TLS: withTLS, Sentinel: one}},
		{"redis-sentinel://s1/m?sentinel_tls=true", conn.Config{Sentinel: with(func(s *conn.Sentinel) { s.TLS = withTLS })}},
		{"redis-sentinel://s1/m?sentinel_username=bo&sentinel_password=p%40w&sentinel_timeout=2s&poll_interval=-1s&timeout=3s", conn.Config{
			Timeout: 3 * time.Second,
			Sentinel: with(func(s *conn.Sentinel) {
				s.Username, s.Password, s.Timeout, s.PollInterval = "bo", "p@w", 2*time.Second, -time.Second
			}),
		}},
	}
	for _, tt := range tests {
		got, err := conn.ParseURL(tt.url)
		switch {
		case tt.want.Sentinel.Master == "":
			if err == nil {
				t.Errorf("ParseURL(%q) = %v, want an error", tt.url, got)
			}
		case err != nil:
			t.Errorf("ParseURL(%q) = %v", tt.url, err)
		case (got.Sentinel.TLS == nil) != (tt.want.Sentinel.TLS == nil):
			t.Errorf("ParseURL(%q): TLS of sentinels %v", tt.url, got.Sentinel.TLS)
		default:
			got.Sentinel.TLS, tt.want.Sentinel.TLS = nil, nil
			if !equalConfig(got, tt.want) {
				t.Errorf("ParseURL(%q) = %#v, %+v, want %#v, %+v", tt.url, got, got.Sentinel, tt.want, tt.want.Sentinel)
			}
		}
	}
}

func TestParseSentinelURLRefuses(t *testing.T) {
	tests := []struct{ url, want string }{
		{"redis-sentinel://", "name of the master"},
		{"redis-sentinel://s1", "name of the master"},
		{"redis-sentinel://s1/", "name of the master"},
		{"redis-sentinel://s1//0", "name of the master"},
		{"redis-sentinel:s1/m", "//"},
		{"redis-sentinel://s1,/m", "no host"},
		{"redis-sentinel://s1,s2:0/m", "port"},
		{"redis-sentinel://s1,s2:x/m", "malformed"},
		{"redis-sentinel://s1,2001:db8::1/m", "brackets"},
		{"redis-sentinel://s1/m/x", "database"},
		{"redis-sentinel://s1/m/1/2", "database"},
		{"redis-sentinel://s1/m/1?db=2", "different databases"},
		{"redis-sentinel://s1/m?sentinel_tls=perhaps", "sentinel_tls"},
		{"redis-sentinel://s1/m?sentinel_timeout=-1s", "Sentinel.Timeout"},
		{"redis-sentinel://s1/m?poll_interval=10", "poll_interval"},
		{"redis-sentinel://s1/m?tls_server_name=x", "tls_server_name"},
		{"redis-sentinel://al:" + secret + "@s1,x@s2/m?foo=1", "unknown"},
		{"redis-sentinel://al:" + secret + "/,x@s2/m", "malformed"},
		{"redis://s1/0?sentinel_timeout=1s", "unknown"},
		{"redis://s1,s2/0", ""},
	}
	for _, tt := range tests {
		cfg, err := conn.ParseURL(tt.url)
		if err == nil {
			if tt.want != "" {
				t.Errorf("ParseURL(%q) = %v, want an error about %q", tt.url, cfg, tt.want)
			}
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("ParseURL(%q) = %v, want an error about %q", tt.url, err, tt.want)
		}
	}
}

// TestSentinelConfig: invalid settings are refused, and no error or text shows a password.
func TestSentinelConfig(t *testing.T) {
	tests := map[string]conn.Config{
		"Addr is set":       {Addr: "h:1", Sentinel: conn.Sentinel{Master: "m", Addrs: []string{"s:1"}}},
		"Network":           {Network: "unix", Sentinel: conn.Sentinel{Master: "m", Addrs: []string{"s:1"}}},
		"Addrs is empty":    {Sentinel: conn.Sentinel{Master: "m"}},
		"Addrs[1]":          {Sentinel: conn.Sentinel{Master: "m", Addrs: []string{"s:1", "s"}}},
		"Master has":        {Sentinel: conn.Sentinel{Master: "m m", Addrs: []string{"s:1"}}},
		"below 0":           {Sentinel: conn.Sentinel{Master: "m", Addrs: []string{"s:1"}, Timeout: -1}},
		"TLS.ServerName is": {Sentinel: conn.Sentinel{Master: "m", Addrs: []string{":1"}, TLS: &tls.Config{}}},
	}
	for want, cfg := range tests {
		if _, err := conn.DialStream(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("DialStream(%v) = %v, want an error about %q", cfg, err, want)
		}
	}
	cfg := conn.Config{Username: "al", Password: secret, DB: 1, TLS: &tls.Config{}, Sentinel: conn.Sentinel{
		Master: "m", Addrs: []string{"s1:1", "s2:2"}, Username: "bo", Password: secret,
	}}
	const want = "rediss-sentinel://al@s1:1,s2:2/m?db=1"
	for _, text := range []string{cfg.String(), fmt.Sprintf("%v", cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg)} {
		if text != want {
			t.Errorf("a Config is printed as %s, want %s", text, want)
		}
	}
}
