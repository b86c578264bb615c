package lock

import (
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// The latch of a release is the key under which the server remembers its outcome. All requests of a release have the same latch: a
// repeat finds the outcome of an earlier request, or keeps the earlier request from taking effect later.
//
//	event                                  the latch then
//	first request of a single release      the spare latch of an earlier release, or a new latch
//	first request of any other release     a new latch
//	first request refused in a migration   a new latch, as the spare latch may be on another node than the lock
//	a release as an undo has run in part   a new latch, as with the old latch a repeat might do nothing; then the old latch again
//	answer to a single release             is spare: it names its owner, so the next release can use it
//	answer: released                       is deleted; for an Owner whose earlier request may still arrive, it expires
//	answer: not held                       expires, if there is one

// single reports whether the release runs the script kind.Single, made for owners with exactly one hold.
func (l *Lease) single() bool { return l.state == nil && l.target.kind.Single != nil }

// firstLatch returns the latch for the first request of the release.
func (l *Lease) firstLatch() string {
	if l.single() {
		if key := l.client.cleanup.SpareLatch(l.target.name); key != "" {
			return key
		}
	}
	return newLatch(l.target)
}

// replaceLatch takes a new latch for the first single release, refused by a node of a migrating slot: the spare latch may be elsewhere.
func (l *Lease) replaceLatch() {
	if !l.unanswered {
		l.client.cleanup.DeleteLatch(l.target.name, l.latch)
		l.latch = newLatch(l.target)
	}
}

// unsure reports whether a request sent at the instant sent has an uncertain outcome after err, and notes it for the repeats.
func (l *Lease) unsure(sent clock.Instant, err error) bool {
	if err == nil || !remote.Uncertain(err) {
		return false
	}
	l.noteUnsure(sent, netfail.DeniedInside(err))
	return true
}

// noteUnsure notes that a request sent at the instant sent may still take effect. part: a part of the script has run, so the hold may be
// released without a latch.
func (l *Lease) noteUnsure(sent clock.Instant, part bool) {
	if !l.unanswered {
		l.unanswered, l.unansweredSince = true, sent
	}
	l.maybeNoLatch = l.maybeNoLatch || part
}

// mayReleaseTwice reports whether a repeat could release a second hold of the Owner, since an earlier request may have left no latch, or its
// latch may be gone.
func (l *Lease) mayReleaseTwice() bool {
	return l.state != nil && (l.maybeNoLatch || l.leftTally || l.latchMayBeGone())
}

// latchMayBeGone reports whether the latch of the first request without an answer may expire before a repeat arrives. Time asleep counts.
func (l *Lease) latchMayBeGone() bool {
	return l.unanswered && l.unansweredSince.Elapsed(l.client.now()) > latchLife/2
}

// finishLatch deletes the latch or keeps it for the next release, as the outcome is known. released: a request has set the latch.
func (l *Lease) finishLatch(released bool) {
	u, name := l.client.cleanup, l.target.name
	if l.maybeNoLatch && l.state == nil { // the script may have left the lease of a reader on another node
		for _, key := range l.readLeases() {
			u.DeleteLatch(name, key)
		}
	}
	switch {
	case l.single():
		u.KeepLatch(name, l.latch)
	case released && (l.state == nil || !l.unanswered):
		u.DeleteLatch(name, l.latch)
	}
}
