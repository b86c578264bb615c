package lock

// A lock that the watchdog renews goes to the first in line of the same process without a word to the server, if that one wants it
// renewed too: it is the same hold there, with the same owner and the same lease, and belongs to one caller after the other. The last
// of a series gives it back. When the server was last asked is as long ago as the series, which Config.HandOverFor bounds.

// relay passes the lock on to the first in line of this process, and reports whether that has it now.
func (l *Lease) relay() bool {
	if !l.relayable() {
		return false
	}
	heir := l.client.heir(l, func(next *request) bool { return next.renewed })
	if heir == nil {
		return false
	}
	l.client.watchdog.remove(l)
	return heir.tell(&passed{granted: true, owner: l.owner, start: l.start, series: l.series.next()})
}

// relayable reports whether nothing casts doubt on the hold and nothing is under way that concerns it. The lease is over for its
// holder: no renewal begins any more.
func (l *Lease) relayable() bool {
	if !l.renewed || l.target.kind.token != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost == nil && l.failure == nil && l.renewal == nil
}
