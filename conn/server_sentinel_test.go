package conn_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// TestFailovers loses masters under load. Calls end with a reply or as uncertain; commands not sent reach the new
// master. It runs several rounds with LOCKWIRE_TORTURE=1, and one round with -short.
func TestFailovers(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{Password: secret}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		cfg := s.Config()
		cfg.Conns, cfg.Retry = 2, conn.Retry{Attempts: 1 << 20, Budget: -1}
		cfg.Trace = &conn.Trace{Switch: func(info conn.SwitchInfo) { t.Logf("from %s to %s", info.From, info.To) }}
		p := openPool(t, cfg)
		defer p.Close()
		load := startLoad(t, p, 16)
		defer load.stop()
		rounds := 1
		if os.Getenv("LOCKWIRE_TORTURE") == "1" {
			rounds = 5
		}
		for range rounds {
			for _, f := range redistest.Failovers {
				old := s.Master()
				f.Begin(s, old)
				s.AwaitMaster(old)
				begun := time.Now()
				awaitMaster(t, p, s)
				t.Logf("%s: on the new master %v after the sentinels agreed", f.Name, time.Since(begun))
				f.End(s, old)
				s.AwaitHealthy()
			}
		}
		load.stop()
		t.Logf("%d replies, %d uncertain, %+v", load.replies.Load(), load.uncertain.Load(), p.Stats())
		if n := p.Stats().Switches; n < uint64(rounds*len(redistest.Failovers)) {
			t.Errorf("%d switches, want %d", n, rounds*len(redistest.Failovers))
		}
	})
}

// awaitMaster returns when all connections of the pool lead to the current master, which on a busy machine may have
// changed again.
func awaitMaster(t testing.TB, p *conn.Pool, s *redistest.Sentinels) {
	t.Helper()
	eventually(t, func() bool {
		v, err := s.Master().Try("INFO", "server")
		if err != nil {
			return false
		}
		id := runID(t, v)
		for range 8 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			v, err := p.Do(ctx, "INFO", "server")
			cancel()
			if err != nil || runID(t, v) != id {
				return false
			}
		}
		return true
	})
}

// load is a group of callers without pauses.
type load struct {
	replies, uncertain atomic.Int64
	cancel             context.CancelFunc
	callers            sync.WaitGroup
}

func startLoad(t *testing.T, p *conn.Pool, n int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	x := &load{cancel: cancel}
	for range n {
		x.callers.Go(func() {
			for ctx.Err() == nil {
				switch _, err := p.Do(ctx, "INCR", "n"); {
				case err == nil:
					x.replies.Add(1)
				case errors.Is(err, conn.ErrUncertain):
					x.uncertain.Add(1)
				case ctx.Err() == nil:
					t.Errorf("INCR = %v", err)
					return
				}
			}
		})
	}
	return x
}

func (x *load) stop() {
	x.cancel()
	x.callers.Wait()
}

// runID returns the run id of a server process.
func runID(t testing.TB, info resp.Value) string {
	t.Helper()
	text, err := info.Text()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(text, "\r\n")
	return id
}
