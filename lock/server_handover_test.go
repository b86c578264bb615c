package lock_test

import (
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// A lock is handed over within a process without a message, whichever kind it is, if that has been asked for.
func TestServerHandOver(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{HandOvers: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for name, h := range map[string]*lock.Handle{"reentrant": &c.Reentrant("a").Handle, "fenced": &c.Fenced("b").Handle} {
			silent := false
			for round := 0; round < 50 && !silent; round++ {
				lease, err := h.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				next := make(chan *lock.Lease)
				go func() {
					lease, err := h.Lock(t.Context())
					if err != nil {
						t.Error(err)
					}
					next <- lease
				}()
				if !eventually(patience, func() bool { return c.Stats().Waiting == 1 }) {
					t.Fatal("nobody waits")
				}
				s.Do("CONFIG", "RESETSTAT")
				mustUnlock(t, lease)
				after := <-next
				stats, _ := s.Do("INFO", "commandstats").Text()
				silent = !strings.Contains(stats, "cmdstat_publish:")
				if after.Token() < lease.Token() || after.Err() != nil {
					t.Errorf("%s: token %d after %d, Err() = %v", name, after.Token(), lease.Token(), after.Err())
				}
				mustUnlock(t, after)
			}
			if !silent {
				t.Errorf("%s: no release has handed the lock over", name)
			}
		}
		s.Do("FLUSHALL")
	})
}
