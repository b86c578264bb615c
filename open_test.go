package lockwire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func TestOpenRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"":                        "the URL is empty: write redis://",
		"localhost:6379":          "no scheme: write redis://",
		"al:s3cr3t@h:6379":        "no scheme: write redis://",
		"redis-cluster:h":         "scheme is not redis-cluster",
		"redis-cluster://h:s3cr3": "malformed",
		"redis://al:s3cr3t@h:x":   "malformed",
		"http://s3cr3t@h":         "scheme http is not redis",
	} {
		c, err := lockwire.Open(t.Context(), url, lockwire.Config{})
		if c != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3") {
			t.Errorf("Open(%q) = %v, %v, want an error with %q", url, c, err, want)
		}
	}
}

// An invalid configuration of locks leaves no connection behind: TestMain would find its goroutines.
func TestOpenRefusesLockConfig(t *testing.T) {
	srv := fakeredis.New()
	defer srv.Close()
	cfg := lockwire.Config{Lock: lock.Config{Lease: 1}, Conn: func(c *conn.Config) { c.Dial = srv.Dial }}
	if c, err := lockwire.Open(t.Context(), "redis://h", cfg); c != nil || !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("Open() = %v, %v, want ErrInvalid", c, err)
	}
}
