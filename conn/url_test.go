package conn_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
)

func TestParseURL(t *testing.T) {
	withTLS := &tls.Config{MinVersion: tls.VersionTLS12}
	tests := []struct {
		url  string
		want conn.Config
	}{
		{"redis://", conn.Config{Addr: "127.0.0.1:6379"}},
		{"redis:///2", conn.Config{Addr: "127.0.0.1:6379", DB: 2}},
		{"redis://:7000", conn.Config{Addr: "127.0.0.1:7000"}},
		{"valkey://db.example", conn.Config{Addr: "db.example:6379"}},
		{"REDIS://db.example/", conn.Config{Addr: "db.example:6379"}},
		{"rediss://db.example/15", conn.Config{Addr: "db.example:6379", DB: 15, TLS: withTLS}},
		{"valkeys://db.example:7000", conn.Config{Addr: "db.example:7000", TLS: withTLS}},
		{"redis://[2001:db8::1]", conn.Config{Addr: "[2001:db8::1]:6379"}},
		{"redis://[fe80::1%25eth0]:7000/1", conn.Config{Addr: "[fe80::1%eth0]:7000", DB: 1}},
		{"redis://al:pw@h", conn.Config{Addr: "h:6379", Username: "al", Password: "pw"}},
		{"redis://:pw@h", conn.Config{Addr: "h:6379", Password: "pw"}},
		{"redis://al@h", conn.Config{Addr: "h:6379", Username: "al"}},
		{"redis://al:@h", conn.Config{Addr: "h:6379", Username: "al"}},
		{"redis://a%3Al:p%40%2F%3F%23%25@h", conn.Config{Addr: "h:6379", Username: "a:l", Password: "p@/?#%"}},
		{"redis://al:p@:w@h", conn.Config{Addr: "h:6379", Username: "al", Password: "p@:w"}},
		{"unix:///run/redis.sock", conn.Config{Network: "unix", Addr: "/run/redis.sock"}},
		{"unix://al:pw@/run/a%20b%40c?db=4",
			conn.Config{Network: "unix", Addr: "/run/a b@c", Username: "al", Password: "pw", DB: 4}},
		{"redis://h?db=3", conn.Config{Addr: "h:6379", DB: 3}},
		{"redis://h/?db=3", conn.Config{Addr: "h:6379", DB: 3}},
		{"redis://h/3?db=3", conn.Config{Addr: "h:6379", DB: 3}},
		{"redis://h?protocol=2&client_name=w%2D1&conns=2&max_conns=3",
			conn.Config{Addr: "h:6379", Protocol: 2, ClientName: "w-1", Conns: 2, MaxConns: 3}},
		{"redis://h?dial_timeout=1s&timeout=-1ns&ping_interval=1m30s&max_age=1h&idle_timeout=0", conn.Config{
			Addr: "h:6379", DialTimeout: time.Second, Timeout: -1, PingInterval: 90 * time.Second, MaxAge: time.Hour,
		}},
		{"redis://h?no_identity=true", conn.Config{Addr: "h:6379", NoIdentity: true}},
		{"redis://h?no_identity=false", conn.Config{Addr: "h:6379"}},
		{"rediss://10.0.0.1?tls_server_name=db.example", conn.Config{
			Addr: "10.0.0.1:6379", TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "db.example"},
		}},
	}
	for _, tt := range tests {
		got, err := conn.ParseURL(tt.url)
		if err != nil {
			t.Errorf("ParseURL(%q) = %v", tt.url, err)
		} else if !equalConfig(got, tt.want) {
			t.Errorf("ParseURL(%q) = %#v (%+v), want %#v", tt.url, got, got.Retry, tt.want)
		}
	}
}

// equalConfig compares the fields that a URL can set. %#v of a Config hides passwords, so output may not show a
// difference.
func equalConfig(a, b conn.Config) bool {
	if (a.TLS == nil) != (b.TLS == nil) ||
		a.TLS != nil && (a.TLS.ServerName != b.TLS.ServerName || a.TLS.MinVersion != b.TLS.MinVersion) {
		return false
	}
	a.TLS, b.TLS = nil, nil
	return reflect.DeepEqual(a, b)
}

func TestParseURLRefuses(t *testing.T) {
	tests := []struct{ url, want string }{
		{"", "the URL is empty: write redis://host:6379"},
		{" ", "the URL is empty"},
		{"localhost", "no scheme: write redis:// in front"},
		{"localhost:6379", "no scheme: write redis:// in front"},
		{"127.0.0.1:6379", "no scheme: write redis:// in front"},
		{"al:pw@h:6379", "no scheme: write redis:// in front"},
		{"http://h", "scheme http is not redis, rediss (TLS)"},
		{"redis+sentinel://h/m", "scheme redis+sentinel is not"},
		{"p4ssword://h", "scheme is not"},
		{"redis-cluster://h", "scheme redis-cluster is for a cluster: use cluster.ParseURL"},
		{"VALKEYS-cluster://h", "scheme valkeys-cluster is for a cluster"},
		{"unix-cluster://h", "scheme unix-cluster is"},
		{"redis:h", "//"},
		{"redis:6379", "//"},
		{"redis://h:0", "port"},
		{"redis://h:65536", "port"},
		{"redis://h:port", "malformed"},
		{"redis://a:1,b:2", "more than one host: write redis-cluster://"},
		{"redis://a,b", "more than one host"},
		{"redis://a,al:pw@b", "comma before the @"},
		{"redis://::1", "brackets"},
		{"redis://::1:6379", "brackets"},
		{"redis://[::1", "malformed"},
		{"redis://h/x", "path"},
		{"redis://h/1/2", "path"},
		{"redis://h//1", "path"},
		{"redis://h/-1", "path"},
		{"redis://h/99999999999", "path"},
		{"redis://h/1?db=2", "different databases"},
		{"redis://h/0?db=2", "different databases"},
		{"redis://h?db=", "db"},
		{"redis://h?db=x", "db"},
		{"redis://h?db=1&db=1", "repeated"},
		{"redis://h?dbb=1", `unknown parameter "dbb"`},
		{"redis://h?password=x", `unknown parameter "password"`},
		{"redis://h?read_timeout=3s", `unknown parameter "read_timeout": write timeout`},
		{"redis://h?pool_size=3", `unknown parameter "pool_size": write conns`},
		{"redis-sentinel://h/m?master_name=m", "write the name of the master as the path"},
		{"redis://h?a;b", "malformed parameters"},
		{"redis://h?timeout=5", "timeout is not a duration"},
		{"redis://h?max_age=x", "max_age is not a duration"},
		{"redis://h?protocol=4", "Protocol"},
		{"redis://h?conns=-1", "conns"},
		{"redis://h?no_identity=x", "no_identity"},
		{"redis://h?client_name=a%20b", "ClientName"},
		{"redis://h?tls_server_name=x", "rediss"},
		{"rediss://:6379#x", "percent-encoded"},
		{"unix://", "unix:///path"},
		{"unix:///", "unix:///path"},
		{"unix:x", "unix:///path"},
		{"unix://host/path", "unix:///path"},
		{"unix:///x?tls_server_name=x", "rediss"},
	}
	for _, tt := range tests {
		cfg, err := conn.ParseURL(tt.url)
		if err == nil {
			t.Errorf("ParseURL(%q) = %v, want an error", tt.url, cfg)
			continue
		}
		if !strings.HasPrefix(err.Error(), "conn: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseURL(%q) = %v, want an error with %q", tt.url, err, tt.want)
		}
	}
}

// TestParseURLHidesPassword: no error contains a password that breaks the URL.
func TestParseURLHidesPassword(t *testing.T) {
	for _, password := range []string{"s3cr3t", "s3/cr3t", "12?s3cr3t", "1#s3cr3t", "s3%zzcr3t", "12?s3cr3t&s3cr3t",
		"s3\x01cr3t", "s3 cr3t", "[s3cr3t", "12/s3cr3t?s3cr3t=s3cr3t"} {
		for _, form := range []string{"redis://:PW@h/x", "redis://al:PW@h:x", "PW", "redis:PW", "redis://h:PW",
			"redis://h/PW", "PW://h", "redis://al:PW@[h", "unix://al:PW@h/x", "redis://al:PW@h?x=1"} {
			if strings.Contains(password, "?") && !strings.Contains(form, "@") {
				continue // the name of a parameter by any reading
			}
			s := strings.ReplaceAll(form, "PW", password)
			if _, err := conn.ParseURL(s); err != nil && strings.Contains(err.Error(), "cr3t") {
				t.Errorf("ParseURL(%q) = %v, which holds the password", s, err)
			}
		}
	}
}

// FuzzParseURL: no URL panics, an accepted URL gives a valid Config, and an error does not repeat the URL.
func FuzzParseURL(f *testing.F) {
	for _, seed := range [][3]string{
		{"redis", "pa?ss", "h:1/2?db=2"}, {"rediss", "12/x", "[::1]"}, {"unix", "%zz", "/x?db=1"}, {"", "#", "?a=b&a=c"},
		{"valkey", "a@b", "h?timeout=1s"}, {"valkeys", "", "h?x=y"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, scheme, password, rest string) {
		for _, s := range []string{
			scheme + "://al:" + password + "@" + rest,
			scheme + "://" + url.UserPassword("al", password).String() + "@" + rest,
		} {
			cfg, err := conn.ParseURL(s)
			switch {
			case err == nil:
				checkParsed(t, s, cfg)
			case len(password) > 3 && !strings.Contains(rest, password) && !strings.Contains(scheme, password) &&
				strings.Contains(err.Error(), password) && !isOurWord(password):
				t.Errorf("ParseURL(%q) = %v, which holds the password", s, err)
			}
		}
	})
}

// isOurWord reports whether a password is by chance part of the text of any error.
func isOurWord(password string) bool {
	for _, s := range []string{"x", "x://", "redis:x", "redis://h:0", "redis://[::1%25a]:0", "redis://h/x", "redis://h?db=x",
		"redis://h?a", "redis://h?db=1&db=1", "redis://h?a;b", "redis://h/1?db=2", "redis://h?tls_server_name=x", "unix:x",
		"redis://::1", "redis://h?timeout=x", "redis://h?protocol=9", "redis://h?client_name=%20", "rediss://h#",
		"", "redis-cluster://h", "redis://h,h", "redis-sentinel://h,x@h/m"} {
		if _, err := conn.ParseURL(s); err != nil && strings.Contains(err.Error(), password) {
			return true
		}
	}
	return false
}

func checkParsed(t *testing.T, s string, cfg conn.Config) {
	t.Helper()
	if cfg.Network == "unix" {
		if !strings.HasPrefix(cfg.Addr, "/") {
			t.Errorf("ParseURL(%q): Addr = %q, want a path", s, cfg.Addr)
		}
	} else if host, port, err := net.SplitHostPort(cfg.Addr); err != nil || host == "" || port == "" {
		t.Errorf("ParseURL(%q): Addr = %q, want host:port", s, cfg.Addr)
	}
	if cfg.DB < 0 || cfg.Conns < 0 || cfg.MaxConns < 0 {
		t.Errorf("ParseURL(%q) = %v with a number below 0", s, cfg)
	}
	if cfg.Username == "" && cfg.Password == "" {
		t.Errorf("ParseURL(%q) = %v without its user", s, cfg)
	}
}

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
		{"redis-sentinel://al:p,w@s1/m", conn.Config{Username: "al", Password: "p,w", Sentinel: one}}, // as net/url writes it
		{"redis-sentinel://:1,w@s1/m", conn.Config{Password: "1,w", Sentinel: one}},
		{"redis-sentinel://a%2Cl:1%2Cw@s1/m", conn.Config{Username: "a,l", Password: "1,w", Sentinel: one}},
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
		{"redis-sentinel://al:" + secret + "@s1,x@s2/m", "comma before the @"},
		{"redis-sentinel://s1,al:" + secret + "@s2/m", "comma before the @ may separate hosts: write user and password once, in front of all hosts"},
		{"redis-sentinel://al:" + secret + "@s1,al:" + secret + "@s2/m", "comma before the @"},
		{"Valkeys-Sentinel://s1:26379,s2:26379,al:" + secret + "@s3/m", "comma before the @"},
		{"redis-sentinel://,h1:26379,al:" + secret + "@s2/m", "comma before the @"},
		{"redis-sentinel://al:1," + secret + "@s1/m", "a comma in them as %2C"},
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
