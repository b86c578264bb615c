package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Owner is who holds a lock. Leases taken [As] one Owner are holds of the same owner, so a lock can be taken again by
// code that is called by its holder. An Owner belongs to the [Client] that made it and may be used by any number of
// goroutines; they all count as one, so do not share it between two that should exclude each other. The zero Owner is
// not valid.
type Owner struct{ state *ownerState }

// String returns the owner as it stands in the lock's hash, as Redisson writes it: the client's id, a colon, a number.
func (o Owner) String() string {
	if o.state == nil {
		return ""
	}
	return o.state.id
}

// ownerState is what the client knows about the holds of one Owner.
type ownerState struct {
	client *Client
	id     string

	// turn is taken by whoever changes a hold count of this owner and kept until the server has answered for certain.
	// So the tallies are the server's, and taking back an unanswered acquire can say how far.
	turn    chan struct{}
	tallies map[entryKey]tally // guarded by turn
	terms   int64              // guarded by turn
	mayCome int64              // server's time in ms until which a request without a latch may take effect yet; guarded by turn

	queued []place // of the calls that wait in queues on the server; guarded by Client.mu
}

// place is that of a call in the queue of a lock, which its owner has only once there.
type place struct {
	key  entryKey
	look chan struct{} // has room for one: the owner has got the lock by another call
}

// tally is what the server has of one owner on one lock.
type tally struct {
	count int64 // of holds
	term  int64 // a number for the time since the first of them: holds of an earlier time are not among them
}

// grant takes note of a hold that the server has just given, which it says is the count-th, and returns its term. The
// caller has the turn.
func (o *ownerState) grant(key entryKey, count int64) (term int64) {
	if len(o.tallies) >= maxTallies {
		o.pruneTallies()
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

// maxTallies is from how many tallies on those are looked for whose holds are all over.
const maxTallies = 64

func (o *ownerState) pruneTallies() {
	for key := range o.tallies {
		if len(o.client.holdsOf(key, o.id+key.kind.suffix, nil)) == 0 {
			delete(o.tallies, key)
		}
	}
}

// ungrant takes note that the server has one hold less. The caller has the turn.
func (o *ownerState) ungrant(key entryKey) {
	t := o.tallies[key]
	if t.count--; t.count > 0 {
		o.tallies[key] = t
	} else {
		delete(o.tallies, key)
	}
}

// NewOwner returns a new owner, different from all others of all clients.
func (c *Client) NewOwner() Owner {
	return Owner{&ownerState{
		client:  c,
		id:      c.nextOwner(),
		turn:    make(chan struct{}, 1),
		tallies: make(map[entryKey]tally),
	}}
}

func (c *Client) nextOwner() string {
	var buf [64]byte
	b := append(buf[:0], c.id...)
	b = append(b, ':')
	return string(strconv.AppendInt(b, c.owners.Add(1), 10))
}

// take waits for the turn to change holds of o.
func (o *ownerState) take(ctx context.Context) error {
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
	case <-o.client.done:
		return ErrClosed
	}
}

func (o *ownerState) give() { <-o.turn }

// newUUID returns a random UUID, version 4, in the form that Java's UUID.toString has.
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
