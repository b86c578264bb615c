package redistest_test

import (
	"context"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
)

// A master that dies is replaced, and follows the new one when it is back.
func TestSentinels(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{Password: "pa55"}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		old := s.Master()
		if old != s.Servers()[0] {
			t.Errorf("the master is %s, want the first server", old.Addr())
		}
		old.Kill()
		master := s.AwaitMaster(old)
		p, err := conn.Open(context.Background(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.Do(context.Background(), "SET", "k", "v"); err != nil {
			t.Fatal(err)
		}
		if v, err := master.Do("GET", "k").Text(); err != nil || v != "v" {
			t.Errorf("k on the new master = %q, %v", v, err)
		}
		s.AwaitHealthy() // of those that are left
		s.Failover()
		if next := s.AwaitMaster(master); next == old {
			t.Errorf("%s is the master, which is dead", next.Addr())
		}
	})
}
