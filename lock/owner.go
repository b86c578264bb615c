package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
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
	id   string
	done <-chan struct{} // closed by Close of the client that made the Owner

	// turn is taken to change a hold count of this owner, and kept until the server has certainly answered. The tallies
	// therefore equal the server's counts, and the undo of an unanswered acquire knows the previous count.
	turn    chan struct{}
	tallies map[entryKey]tally // guarded by turn
	terms   int64              // guarded by turn
	mayCome int64              // server's time in ms until which a request without a latch may still take effect; guarded by turn

	queued []place // places of calls waiting in queues on the server; guarded by table.mu
}

// place is the place of a call in the queue of a lock. An owner has at most a single place per queue.
type place struct {
	key  entryKey
	look chan struct{} // buffered, 1: signalled when the owner has acquired the lock by another call
}

// tally is the server's record of an owner's holds of a lock.
type tally struct {
	count int64 // of holds
	term  int64 // number of the period since the first of the holds; holds of earlier periods are not counted
}

// grant records a granted hold and returns its term. count is the hold count reported by the server. The caller has the turn.
// holds reports whether the client still has holds of the lock of an owner.
func (o *ownerState) grant(key entryKey, count int64, holds func(key entryKey, owner string) bool) (term int64) {
	if len(o.tallies) >= maxTallies {
		for key := range o.tallies {
			if !holds(key, o.id+key.kind.Suffix) {
				delete(o.tallies, key)
			}
		}
	}
	t, known := o.tallies[key]
	if count == 1 || !known {
		o.terms++
		t.term = o.terms
	}
	t.count = count
	o.tallies[key] = t
	return t.term
}

// maxTallies is the number of tallies from which grant looks for tallies without holds.
const maxTallies = 64

// ungrant records the end of a hold. The caller has the turn.
func (o *ownerState) ungrant(key entryKey) {
	if o == nil {
		return
	}
	t := o.tallies[key]
	if t.count--; t.count > 0 {
		o.tallies[key] = t
	} else {
		delete(o.tallies, key)
	}
}

// take waits for the turn to change holds of o.
func (o *ownerState) take(ctx context.Context) error {
	if o == nil {
		return nil
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lock: waiting for another call of the same owner: %w", ended(ctx))
	case <-o.done:
		return ErrClosed
	}
}

// turnOf returns the field turn; nil without an Owner.
func (o *ownerState) turnOf() chan struct{} {
	if o == nil {
		return nil
	}
	return o.turn
}

// mayComeOf returns the field mayCome; nil without an Owner.
func (o *ownerState) mayComeOf() *int64 {
	if o == nil {
		return nil
	}
	return &o.mayCome
}

// count returns the number of holds of a lock on the server; 0 without an Owner. The caller has the turn.
func (o *ownerState) count(key entryKey) int64 {
	if o == nil {
		return 0
	}
	return o.tallies[key].count
}

func (o *ownerState) give() {
	if o != nil {
		<-o.turn
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
