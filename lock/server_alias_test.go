package lock_test

import (
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// One server by its address and by its name, with and without options that make no difference, and by another database.
func TestServerMultiOfOneLock(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		client := func(change func(*conn.Config)) *lock.Client {
			cfg := s.Config()
			change(&cfg)
			pool, err := conn.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			c, err := lock.New(pool, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = c.Close()
				_ = pool.Close()
			})
			return c
		}
		plain := client(func(*conn.Config) {})
		for name, other := range map[string]*lock.Client{
			"by its name":  client(func(cfg *conn.Config) { cfg.Addr = strings.Replace(cfg.Addr, "127.0.0.1", "localhost", 1) }),
			"by a network": client(func(cfg *conn.Config) { cfg.Network = "tcp4" }),
		} {
			_, err := newMulti(t, plain.Reentrant("x"), other.Reentrant("x")).Lock(t.Context())
			wantErr(t, name, err, lock.ErrInvalid)
		}
		database := client(func(cfg *conn.Config) { cfg.DB = 1; cfg.Network = "tcp4" })
		mustUnlock(t, lockMulti(t, newMulti(t, plain.Reentrant("x"), database.Reentrant("x"))))
	})
}
