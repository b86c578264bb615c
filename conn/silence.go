package conn

import (
	"sync"
	"time"
)

const (
	// silentAfter is the silence of a server that owes an answer before Config.OnSilent is called.
	silentAfter = time.Second

	// silentPeriod is the longest time between calls of OnSilent while the silence lasts.
	silentPeriod = silentAfter / 2
)

// silence decides when to call Config.OnSilent. The link's mu guards it.
type silence struct {
	tell  func(addr string) // constant; nil without OnSilent
	since time.Duration     // begin of the silence, as time since the link's start
}

// silentLocked reports whether to call OnSilent at this tick. heard reports bytes received since the last tick.
func (l *link) silentLocked(now time.Duration, heard bool) bool {
	head := l.oldestLocked()
	if heard || head == nil {
		l.silence.since = now
		return false
	}
	limit := silentAfter
	if head.limit == never { // a blocking command: expect answers to PINGs only
		limit = max(l.ping, silentAfter)
	}
	if l.silence.tell == nil || now-l.silence.since < limit || head.limit == never && l.ping == 0 {
		return false
	}
	if head.limit == never {
		l.silence.since = now
	}
	return true
}

// oldestLocked returns the command with the next reply, or nil without one.
func (l *link) oldestLocked() *entry {
	for _, list := range [...][]entry{l.batch[l.pos.Load():], l.inflight, l.waiting} {
		if len(list) > 0 {
			return &list[0]
		}
	}
	return nil
}

// whileDialing calls OnSilent during a slow dial, until stop. stop waits for OnSilent to return.
func (cfg *Config) whileDialing() (stop func()) {
	if cfg.OnSilent == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(silentAfter)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				cfg.OnSilent(cfg.Addr)
				timer.Reset(silentPeriod)
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
