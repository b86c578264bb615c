package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
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

// ownerState is the client's record of the holds of an Owner.
type ownerState struct {
	id      string
	done    <-chan struct{}                       // closed by Close of the client that made the Owner
	holds   func(key entryKey, owner string) bool // reports whether the client still has holds of the lock of an owner
	periods atomic.Int64                          // numbers of periods given out
	once    bool                                  // made for one call, which has one hold at most; constant

	mu    sync.Mutex            // guards the following, taken before table.mu
	locks map[string]*ownedLock // by name
	most  int                   // records of locks before those without holds are dropped

	queued []place // places of calls waiting in queues on the server; guarded by table.mu
}

// ownedLock is an Owner's record of the lock of a name, of all kinds.
type ownedLock struct {
	// turn has a value to take, unless a call has the turn. The turn is taken to change a hold count of the owner, or a lease, and kept
	// until the server has certainly answered. The tallies therefore equal the server's counts, and the undo of an unanswered acquire
	// knows the previous count. The turn of a dropped record is closed.
	turn chan struct{}

	tallies map[*kind]tally // guarded by ownerState.mu, and changed only in the turn
	mayCome int64           // server's time in ms until which a request without a latch may still take effect; guarded by turn
	until   time.Time       // until then the server may have a hold that the client has lost; guarded by ownerState.mu
}

// place is the place of a call in the queue of a lock. An owner has at most a single place per queue.
type place struct {
	key   entryKey
	look  chan struct{} // buffered, 1: signalled when the owner has acquired the lock by another call
	asked bool          // a request of another call may have kept the place on the server for this call
}

// tally is the server's record of an owner's holds of a lock.
type tally struct {
	count  int64 // of holds
	period int64 // its number: the period since the first of the holds; holds of earlier periods are not counted
}

// lockOf returns the record of the lock of a name.
func (o *ownerState) lockOf(name string) *ownedLock {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.locks[name]; l != nil {
		return l
	}
	if o.locks == nil {
		o.locks, o.most = make(map[string]*ownedLock), fewLocks
	}
	if len(o.locks) >= o.most {
		o.dropLocked()
		o.most = max(fewLocks, 2*len(o.locks))
	}
	l := &ownedLock{turn: make(chan struct{}, 1), tallies: make(map[*kind]tally)}
	l.turn <- struct{}{}
	o.locks[name] = l
	return l
}

// fewLocks is the number of locks from which on an Owner's records without holds are dropped.
const fewLocks = 64

// dropLocked drops the records of locks that the client has no hold of, and no call has the turn of, once the server has none of its
// lost holds either: their Unlock needs the record.
func (o *ownerState) dropLocked() {
	for name, l := range o.locks {
		select {
		case <-l.turn:
		default:
			continue
		}
		needed := l.mayCome > 0 || time.Now().Before(l.until)
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

// grant records a granted hold and returns its period. count is the hold count reported by the server. The caller has the turn.
func (o *ownerState) grant(key entryKey, count int64) (period int64) {
	l := o.lockOf(key.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	t, known := l.tallies[key.kind]
	if count == 1 || !known {
		t.period = o.periods.Add(1)
	}
	t.count = count
	l.tallies[key.kind] = t
	return t.period
}

// ungrant records the end of a hold. The caller has the turn.
func (o *ownerState) ungrant(key entryKey) {
	if o == nil {
		return
	}
	l := o.lockOf(key.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	t := l.tallies[key.kind]
	if t.count--; t.count > 0 {
		l.tallies[key.kind] = t
	} else {
		delete(l.tallies, key.kind)
	}
}

// forget records the end of all holds of a lock. The caller has the turn.
func (o *ownerState) forget(key entryKey) {
	l := o.lockOf(key.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(l.tallies, key.kind)
}

// lost records that the server may have a lost hold until a time.
func (o *ownerState) lost(name string, until time.Time) {
	if o == nil {
		return
	}
	l := o.lockOf(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if until.After(l.until) {
		l.until = until
	}
}

// tally returns the record of the holds of a lock; the zero tally without an Owner.
func (o *ownerState) tally(key entryKey) tally {
	if o == nil {
		return tally{}
	}
	l := o.lockOf(key.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	return l.tallies[key.kind]
}

// keys returns the KEYS of a script that takes or ends a hold of owner, also one of which o does not know yet.
func (o *ownerState) keys(t *target, owner, latch string) []string {
	return t.ofOwner(owner, o.tally(t.reads()).count+1, latch)
}

// take waits for the turn to change holds of o of the lock of a name, until over is closed; nil for never.
func (o *ownerState) take(ctx context.Context, name string, over <-chan struct{}) error {
	for o != nil {
		turn := o.turnOf(name)
		select {
		case _, taken := <-turn:
			if taken {
				return nil
			}
			continue // the record has been dropped
		default:
		}
		select {
		case _, taken := <-turn:
			if taken {
				return nil
			}
		case <-over:
			return ErrReleased
		case <-ctx.Done():
			return fmt.Errorf("lock: waiting for another call of the same owner: %w", ended(ctx))
		case <-o.done:
			return ErrClosed
		}
	}
	return nil
}

// turnOf returns the turn of the lock of a name; nil without an Owner.
func (o *ownerState) turnOf(name string) chan struct{} {
	if o == nil {
		return nil
	}
	return o.lockOf(name).turn
}

// mayComeOf returns the field mayCome of the lock of a name; nil without an Owner.
func (o *ownerState) mayComeOf(name string) *int64 {
	if o == nil {
		return nil
	}
	return &o.lockOf(name).mayCome
}

// give ends the turn of the lock of a name.
func (o *ownerState) give(name string) {
	if o != nil {
		o.turnOf(name) <- struct{}{}
	}
}

// owned returns t for an Owner, who waits in a line of its own: in a common one it could stand behind callers that wait for a
// value of its own.
func (t *target) owned(by *ownerState) *target {
	own := *t
	own.waits += " " + by.id
	return &own
}

// newUUID returns a random UUID, version 4, in the form of Java's UUID.toString.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
