package pipeline

import "time"

const (
	// SilentAfter is the silence of a server that owes an answer before Config.OnSilent is called.
	SilentAfter = time.Second

	// SilentPeriod is the longest time between calls of OnSilent while the silence lasts.
	SilentPeriod = SilentAfter / 2
)

// silentLocked reports whether to call OnSilent at this tick. heard reports bytes received since the last tick.
func (l *Link) silentLocked(now time.Duration, heard bool) bool {
	head := l.oldestLocked()
	if heard || head == nil {
		l.silentSince = now
		return false
	}
	limit := SilentAfter
	if head.blocks { // call OnSilent as often as an idle link sends a PING
		limit = max(l.ping, SilentAfter)
	}
	if l.onSilent == nil || now-l.silentSince < limit || head.blocks && l.ping == 0 {
		return false
	}
	if head.blocks {
		l.silentSince = now
	}
	return true
}
