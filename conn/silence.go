package conn

import (
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
)

// whileDialing calls OnSilent during a slow dial, until stop. stop waits for OnSilent to return.
func (cfg *Config) whileDialing() (stop func()) {
	if cfg.OnSilent == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(pipeline.SilentAfter)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				cfg.OnSilent(cfg.Addr)
				timer.Reset(pipeline.SilentPeriod)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
