package lock

import "time"

// warnWaited reports a lock that was acquired after a long wait.
func (l *Lease) warnWaited(since time.Time) {
	if after := l.client.cfg.WarnAfter; after > 0 && !l.standby && !since.IsZero() && l.since.Time.Sub(since) > after {
		l.warn("acquired after a long wait", "waited", roughly(l.since.Time.Sub(since)))
	}
}

// warnHeld reports a lock held for long.
func (l *Lease) warnHeld() {
	if after := l.client.cfg.WarnAfter; after > 0 && !l.standby && l.age() > after {
		l.warn("held for long")
	}
}
