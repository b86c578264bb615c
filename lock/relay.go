package lock

// Relays: a lock renewed by the watchdog passes to the first waiter of the same process without a request to the server, if
// the waiter wants a renewed lock too. On the server the hold stays the same, with the same owner and lease. The last
// holder of a series releases the lock. Config.HandOverFor bounds the length of a series, and so the time without a
// decision by the server.

// relay passes the lock to the first waiter of this process, and reports whether the waiter has the lock.
func (l *Lease) relay() bool {
	if !l.relayable() {
		return false
	}
	to := l.claimNext(func(next *request) bool { return next.renewed })
	if to == nil {
		return false
	}
	l.client.watchdog.Remove(l)
	return l.notePassedOn(to.deliver(&handedOver{granted: true, owner: l.owner, start: l.start, series: l.series.next()}))
}

// relayable reports whether the hold is certain and no renewal is under way. The lease is already released by its holder, so
// no further renewal begins.
func (l *Lease) relayable() bool {
	if !l.renewed || l.target.kind.Token != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost == nil && l.failure == nil && l.renewal == nil
}
