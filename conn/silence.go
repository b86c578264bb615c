package conn

import (
	"sync"
	"time"
)

const (
	// silentAfter is how long a server may owe an answer and say nothing before Config.OnSilent is told.
	silentAfter = time.Second

	// silentPeriod is how often it is told while the silence lasts, at least.
	silentPeriod = silentAfter / 2
)

// silence is the part of a link's watch that is for Config.OnSilent. It is guarded by the link's mu.
type silence struct {
	tell  func(addr string) // constant; nil: nobody wants to know
	since time.Duration     // since the link's start: nothing has been heard although an answer is owed
}

// silentLocked reports whether OnSilent is to be told, at a tick before which something was heard or not.
func (l *link) silentLocked(now time.Duration, heard bool) bool {
	head := l.oldestLocked()
	if heard || head == nil {
		l.silence.since = now
		return false
	}
	limit := silentAfter
	if head.limit == never { // it may be silent for as long as it likes
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

// oldestLocked returns the command that is to be answered next, or nil if there is none.
func (l *link) oldestLocked() *entry {
	for _, list := range [...][]entry{l.batch[l.pos.Load():], l.inflight, l.waiting} {
		if len(list) > 0 {
			return &list[0]
		}
	}
	return nil
}

// whileDialling tells OnSilent of a dial that takes its time, until stop is called, which waits for OnSilent to return.
func (cfg *Config) whileDialling() (stop func()) {
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
