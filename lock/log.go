package lock

import (
	"strconv"
	"sync"
	"time"
)

const (
	// logEvery is the minimum interval between two lines of the same text about the same lock.
	logEvery = time.Minute
	// maxLogged limits the lines remembered. While so many are younger than logEvery, further lines are dropped.
	maxLogged = 4096
)

// logLimit limits the lines about each lock in the log.
type logLimit struct {
	mu   sync.Mutex // guards the following
	last map[logKey]time.Time
}

type logKey struct{ name, text string }

// allows reports whether the line may be written now.
func (g *logLimit) allows(name, text string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	key, now := logKey{name, text}, time.Now()
	if last, known := g.last[key]; known && now.Sub(last) < logEvery {
		return false
	}
	if len(g.last) >= maxLogged {
		for old, at := range g.last {
			if now.Sub(at) >= logEvery {
				delete(g.last, old)
			}
		}
		if len(g.last) >= maxLogged {
			return false
		}
	}
	if g.last == nil {
		g.last = make(map[logKey]time.Time)
	}
	g.last[key] = now
	return true
}

// warnOf writes a line about a lock, at most one a minute.
func (c *Client) warnOf(name, kind, owner, text string, args ...any) {
	if c.cfg.Logger == nil || !c.logged.allows(name, text) {
		return
	}
	shown := c.shown(name)
	if shown == "" {
		shown = strconv.Quote(name)
	}
	c.warn(text, append([]any{"lock", shown, "kind", kind, "owner", owner}, args...)...)
}

func (l *Lease) warn(text string, args ...any) {
	if l.client.cfg.Logger != nil {
		l.client.warnOf(l.target.name, l.Kind(), l.Owner(), text, append([]any{"age", roughly(l.age())}, args...)...)
	}
}

// warnWaited reports a lock that was acquired after a long wait.
func (l *Lease) warnWaited(since time.Time) {
	if after := l.client.cfg.WarnAfter; after > 0 && !since.IsZero() && l.since.Time.Sub(since) > after {
		l.warn("acquired after a long wait", "waited", roughly(l.since.Time.Sub(since)))
	}
}

// warnHeld reports a lock held for long.
func (l *Lease) warnHeld() {
	if after := l.client.cfg.WarnAfter; after > 0 && l.age() > after {
		l.warn("held for long")
	}
}
