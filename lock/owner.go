package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
)

// Owner identifies the holder of a lock. Leases taken [As] the same Owner are holds of the same holder, so code called by the
// holder can take the lock again. An Owner belongs to the [Client] that made it.
//
// Many goroutines may use an Owner, and all of them count as a single holder: do not share an Owner between goroutines
// that must exclude each other. The zero Owner is invalid.
type Owner struct{ state *ownerState }

// String returns the owner as stored in the lock's hash, in Redisson's form: the client's id, a colon, a number.
func (o Owner) String() string {
	if o.state == nil {
		return ""
	}
	return o.state.id
}

// ownerState is a client's record of an Owner: its locks, and its waiting calls. A nil ownerState stands for a caller without an Owner:
// methods do nothing.
type ownerState struct {
	id        string
	client    string                                // the id of the client that made the Owner
	holds     func(key entryKey, owner string) bool // reports whether the client still has holds of the lock of an owner
	singleUse bool                                  // made for one call, which has one hold at most; constant

	mu      sync.Mutex            // guards the following, and fields of ownedLock; taken before table.mu
	locks   map[string]*ownedLock // by name
	dropAt  int                   // records of locks before those without holds are dropped
	periods int64                 // given out so far

	waiting []waitingCall // guarded by table.mu
}

// waitingCall is a call of an Owner that waits for a lock. All calls of an Owner that wait in the queue on the server share one place there.
type waitingCall struct {
	target *target
	shared chan struct{} // buffered, 1: signalled when the owner has acquired the lock by another call
	asked  bool          // another call's request may have kept the place for this call, which then has to leave it
}

// ownedLock is an Owner's record of the lock of a name, of all kinds.
//
// Invariant: while no call has the turn, each tally equals the server's count, unless the holds have been lost. So an undo knows the count
// before its acquire. A call that changes holds or a lease keeps the turn until the outcome is certain; if the caller leaves before, a
// job of cleanup takes the turn over. The server may count more after a failover, after a release given up for lack of rights, and after an
// undo given up at the end of its lease, beside a hold with a longer one.
type ownedLock struct {
	owner       *ownerState
	turn        chan struct{}   // has a value to take, unless a call has the turn; closed when the record is dropped
	given       atomic.Uint64   // counts the turns that calls have had
	mayRunUntil int64           // server's time in ms until which a request without a latch may still take effect; guarded by the turn
	tallies     map[*kind]tally // guarded by owner.mu, and changed only in the turn
	lostUntil   time.Time       // until then the server may have a hold that the client has lost; guarded by owner.mu
}

// tally is the client's record of the server's hold count for an owner of a lock.
type tally struct {
	count    int64 // of holds
	maxCount int64 // what the server may count in this period, at most: the next master may not know of confirmed releases
	period   int64 // the number of the period, which began with the first of the holds; leases of earlier periods are lost
	token    int64 // the fencing token of the period; 0 as long as no hold has one
}

// fewLocks is the number of records from which on an Owner drops the unneeded ones.
const fewLocks = 64

// lockOf returns the record of the lock of a name; nil without an Owner.
func (o *ownerState) lockOf(name string) *ownedLock {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.locks[name]; l != nil {
		return l
	}
	if o.locks == nil {
		o.locks, o.dropAt = make(map[string]*ownedLock), fewLocks
	}
	if len(o.locks) >= o.dropAt {
		o.dropLocked()
		o.dropAt = max(fewLocks, 2*len(o.locks))
	}
	l := &ownedLock{owner: o, turn: make(chan struct{}, 1), tallies: make(map[*kind]tally)}
	l.turn <- struct{}{}
	o.locks[name] = l
	return l
}

// dropLocked drops the records that nothing needs: no call has the turn, the client has no hold, and the server has no lost hold, whose
// Unlock would need the record.
func (o *ownerState) dropLocked() {
	for name, l := range o.locks {
		select {
		case <-l.turn:
		default:
			continue
		}
		needed := l.mayRunUntil > 0 || time.Now().Before(l.lostUntil)
		for kind := range l.tallies {
			// beside other readers the server counts ended read holds until their Unlock
			needed = needed || kind.isRead() || o.holds(entryKey{kind, name}, o.id+kind.Suffix)
		}
		if needed {
			l.turn <- struct{}{}
			continue
		}
		close(l.turn)
		delete(o.locks, name)
	}
}

// take waits for the turn of the lock of a name, until ctx ends, or over is closed: then it returns reason. A free turn is taken even if
// both have ended. The caller ends the turn by give of the result, which is nil without an Owner.
func (o *ownerState) take(ctx context.Context, name string, over <-chan struct{}, reason error) (*ownedLock, error) {
	for o != nil {
		l, taken := o.takeFree(name)
		if !taken {
			select {
			case _, taken = <-l.turn:
			case <-over:
				return nil, reason
			case <-ctx.Done():
				return nil, fmt.Errorf("lock: waiting for another call of the same owner: %w", netfail.Ended(ctx))
			}
		}
		if taken {
			return l, nil
		}
	}
	return nil, nil
}

// takeFree takes the turn of the lock of a name if it is free.
func (o *ownerState) takeFree(name string) (l *ownedLock, taken bool) {
	for {
		l = o.lockOf(name)
		select {
		case _, taken = <-l.turn:
			if taken { // a closed channel belongs to a dropped record: get the next one
				return l, true
			}
		default:
			return l, false
		}
	}
}

// give ends the turn.
func (l *ownedLock) give() {
	if l != nil {
		l.given.Add(1)
		l.turn <- struct{}{}
	}
}

// turnChannel returns the turn for a job of cleanup to take; nil without an Owner.
func (l *ownedLock) turnChannel() chan struct{} {
	if l == nil {
		return nil
	}
	return l.turn
}

// mayRun returns mayRunUntil for a request sent in the turn; nil without an Owner.
func (l *ownedLock) mayRun() *int64 {
	if l == nil {
		return nil
	}
	return &l.mayRunUntil
}

// tallyWith returns the tally with a hold just granted, for the caller to record in the turn. count and token are the server's; a token of 0
// is none. A new period begins if the earlier holds are lost: the server's count has not grown, or another owner has drawn a token since. A
// count above 1 proves nothing else, as an acquire without an answer may have been the first one of the new period.
func (l *ownedLock) tallyWith(k *kind, count, token int64) (t tally) {
	l.locked(func() {
		var known bool
		t, known = l.tallies[k]
		if count <= t.count || !known || token != 0 && t.token != 0 && token != t.token {
			l.owner.periods++
			t.period, t.maxCount, t.token = l.owner.periods, 0, 0
		}
		t.count, t.maxCount, t.token = count, max(t.maxCount, count), max(t.token, token)
	})
	return t
}

// locked runs fn with the mutex of the Owner; not at all without an Owner.
func (l *ownedLock) locked(fn func()) {
	if l != nil {
		l.owner.mu.Lock()
		defer l.owner.mu.Unlock()
		fn()
	}
}

// record makes t the tally, in the turn.
func (l *ownedLock) record(k *kind, t tally) { l.locked(func() { l.tallies[k] = t }) }

// recordUndone records, in the turn, that the hold with which t would be the tally is undone.
func (l *ownedLock) recordUndone(k *kind, t tally) {
	l.locked(func() {
		if before := l.tallies[k]; before.period == t.period {
			before.maxCount = t.maxCount
			l.tallies[k] = before
		} else { // the earlier holds are lost
			delete(l.tallies, k)
		}
	})
}

// noteUncounted records, in the turn, that the server may count one more hold than before.
func (l *ownedLock) noteUncounted(k *kind) {
	l.locked(func() {
		if t, known := l.tallies[k]; known {
			t.maxCount++
			l.tallies[k] = t
		}
	})
}

// endHold records the end of one hold, or of all, in the turn.
func (l *ownedLock) endHold(k *kind, all bool) {
	l.locked(func() {
		t := l.tallies[k]
		if t.count--; t.count > 0 && !all {
			l.tallies[k] = t
		} else {
			delete(l.tallies, k)
		}
	})
}

// noteLost records that the server may have a lost hold until a time.
func (l *ownedLock) noteLost(until time.Time) {
	l.locked(func() { l.lostUntil = clock.Later(until, l.lostUntil) })
}

// tally returns the record of the holds of a kind; the zero tally without an Owner.
func (l *ownedLock) tally(k *kind) (t tally) {
	l.locked(func() { t = l.tallies[k] })
	return t
}
