package lock

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/claim"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/lock/internal/turns"
	"github.com/lockwire/lockwire/pubsub"
)

// request is one Lock or TryLock, or the counterpart of a kind without leases.
type request struct {
	client    *Client
	target    *target
	lease     time.Duration
	limits    *limits
	owner     string
	state     *ownerState               // the Owner passed by the caller, or of a waiter in the server's queue; else nil
	turn      *ownedLock                // the turn of the Owner, during an attempt; nil without
	latch     string                    // the latch of the last attempt, or ""; an undo of the attempt leaves this key
	failure   error                     // the error of the last attempt, if the attempt had no reply
	short     error                     // the error of the last answered attempt, if too few replicas acknowledged it
	look      chan struct{}             // capacity 1: signalled on a grant that this request may share; nil if there can be none
	since     time.Time                 // the start of the wait
	deadline  time.Time                 // of the context; zero if the context has none
	got       *Lease                    // the lease, once granted
	first     string                    // the granted values that the Owner did not have before, with spaces between them
	seen      sighting                  // by a parked watch, before the first attempt
	place     any                       // a place in the server's line that no waiter has yet; nil for none
	series    turns.Series              // the series of hand-overs that includes the grant
	last      int64                     // the latest time at which a sent request may take effect, by the server's clock, in ms
	ends      time.Duration             // the end of the lease last reported by a refusal, as clocks.Age; 0 if unknown
	holder    *seenHolder               // the last answer about a holder elsewhere, of a waiter without an entry; nil for none
	permits   int                       // the number of permits, for a kind with permits
	traced    *acquiring                // for the Trace; nil if not traced
	via       func(conn.Doer) conn.Doer // wraps the Doer that sends the acquire; nil for none
	renewed   bool                      // the watchdog is to renew the lease
	refused   bool                      // the server has refused, or has granted too late
	waits     bool                      // waiting, until the waiter is withdrawn
	announces bool                      // announces its wait to the server
	asked     bool                      // at least one attempt may have reached the server, or given r a place in its queue
	visits    bool                      // for a Redlock, which is in no line
	unsure    bool                      // an earlier attempt had no reply; the next attempt uses the same latch
	setup     bool                      // waits for the setup of permits
	standby   bool                      // see Standby
}

// sighting is the number of events on a watch at some time.
type sighting struct {
	watch *pubsub.Watch
	count uint64
}

// holds reports whether the watch is the same, is subscribed, and has no new events.
func (s sighting) holds(watch *pubsub.Watch) bool {
	if s.watch != watch {
		return false
	}
	count, up := watch.Count()
	return up && count == s.count
}

// fill makes r the request of a call with the options opts.
func (r *request) fill(c *Client, t *target, opts []Option) error {
	*r = request{client: c, target: t, lease: c.cfg.Lease, renewed: true, limits: c.limits, announces: t.kind.announces && c.cfg.PreferWriters}
	for _, o := range opts {
		if err := o.check(t.kind); err != nil {
			return err
		}
		r.permits, r.setup, r.standby = r.permits+o.permits, r.setup || o.setup, r.standby || o.standby
		if o.hasLease {
			if err := o.checkLease(); err != nil {
				return err
			}
			r.lease, r.renewed = o.lease.Truncate(time.Millisecond), false
		}
		if o.limit != noLimit {
			r.limits = r.limits.with(o.limit, o.limited)
		}
		if o.hasOwner {
			if o.owner == nil || o.owner.done != c.done {
				return invalidf("the Owner was not made by this Client")
			}
			r.state = o.owner
		}
	}
	if err := r.checkLimits(); err != nil {
		return err
	}
	if r.state == nil && t.kind.queued {
		r.state = c.NewOwner().state
		r.state.once = true
	}
	if r.state != nil && t.values != "" {
		r.target = t.owned(r.state)
	}
	r.owner = r.newOwner()
	return nil
}

// newOwner returns the owner of r as known to the server: the Owner passed by the caller or, without one, a new
// owner.
func (r *request) newOwner() string {
	k, id := r.target.kind, ""
	switch {
	case r.state != nil:
		id = r.state.id
	case k.owner != nil:
		return k.owner(r.permits)
	default:
		id = r.client.nextOwner()
	}
	if r.target.values != "" {
		return id + " " + r.target.values
	}
	return id + k.Suffix
}

// own returns the Owner's record of the lock of r; nil without an Owner.
func (r *request) own() *ownedLock { return r.state.lockOf(r.target.name) }

// endTurn gives the turn of the Owner back, unless the undo of the attempt has taken it over.
func (r *request) endTurn() {
	r.turn.give()
	r.turn = nil
}

// checkLimits rejects limits that cannot work with the lease of r.
func (r *request) checkLimits() error {
	c := r.client
	if r.limits == nil || r.target.kind.unowned {
		return nil
	}
	if r.limits.least != 0 && r.state != nil {
		return invalidf("AtLeast with an Owner, who could take the lock again")
	}
	if r.renewed {
		return r.limits.check(r.lease, c.cfg.RenewEvery)
	}
	return r.limits.check(r.lease, 0)
}

// keys appends the KEYS of acquire to dst, which is empty.
func (r *request) keys(dst []string) []string {
	switch t := r.target; {
	case t.kind.Reads:
		return r.own().keys(t, r.owner, r.latch)
	case r.latch == "":
		return t.seeing(dst)
	default:
		return t.lined(append(t.handOverKeys(dst), r.latch))
	}
}

// args returns the ARGV common to all kinds, followed by the kind's own.
func (r *request) args(common ...any) []any {
	if own := r.target.kind.args; own != nil {
		return append(common, own(r.wish())...)
	}
	return common
}

// wish returns what the kind of r knows of r.
func (r *request) wish() wish {
	c, t := r.client, r.target
	w := wish{
		permits:   r.permits,
		setup:     r.setup,
		forever:   r.lease == forever,
		announces: r.announces && r.waits,
		publish:   c.channels.Publishing(t.kind.silent),
		rules:     rules{c.cfg.PreferWriters, c.cfg.PlainTokens, c.cfg.TokenLife},
	}
	if t.kind.queued {
		w.wait, w.inQueue = r.queueWait(), r.inQueue()
	}
	return w
}

// endDoubt ends the doubt after a grant, or after the undo has begun.
func (r *request) endDoubt() {
	c := r.client
	if r.unsure {
		r.unsure = false
		c.calls.Leave(r.permits)
	}
}

// latchLife is the time for which the server remembers the outcome of a release, for its repeats. Redisson's is 16 to 20 s.
const latchLife = 20 * time.Second

// newLatch returns the key under which the server remembers the outcome of one release: the request id at its end is 16
// random bytes in hexadecimal, as Redisson's are.
func newLatch(t *target) string {
	var id [16]byte // guessing an id gains nothing, so math/rand is enough
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	var buf [128]byte
	return string(hex.AppendEncode(kinds.AppendLatch(buf[:0], t.name), id[:]))
}

// inQueue reports whether r, or another call of its owner, waits in the queue of the lock. The other calls then have a place on the server
// to leave, without a request of their own.
func (r *request) inQueue() (queued bool) {
	if r.waits || r.state == nil {
		return r.waits
	}
	r.client.table.mu.Lock()
	defer r.client.table.mu.Unlock()
	for i := range r.state.queued {
		if p := &r.state.queued[i]; p.key == r.target.key() {
			p.asked, queued = true, true
		}
	}
	return queued
}

// queueWait returns the distance between r's deadline in the queue and the deadline of the waiter in front.
func (r *request) queueWait() time.Duration {
	if r.deadline.IsZero() {
		return r.client.cfg.FairWait
	}
	return max(min(r.deadline.Sub(r.since), r.client.cfg.FairWait), time.Millisecond)
}

// waiter is a waiting call of Lock. It stands in the line of its process, or by itself if the server keeps the line.
//
// The caller sleeps in awaitFront until the waiter is at the front, and then in contend.
type waiter struct {
	request // a holder who has claimed the waiter reads it

	// Constant.
	left  time.Duration // remaining lease of the holder at the start of the wait
	entry *entry        // entry of the line; nil if the server keeps the line
	wake  chan struct{} // buffered, 1: signalled after a change of front, claim or head

	front atomic.Bool             // the waiter stands at the front
	claim claim.Claim[handedOver] // may be changed by others too
	head  *head                   // owned by the waiter at the front
	timer *time.Timer             // for the next look; nil before the waiter is at the front

	questions questions // owned by the waiter at the front
	late      time.Time // the first grant that arrived expired, if all grants since then did so; owned by the same

	counted bool // in Client.queued; constant after newWaiter
	inLine  bool // of this process; only the waiter uses it

	next, prev *waiter // guarded by table.mu
}

// head is the state of the waiter at the front. It passes from waiter to waiter with the turn.
type head struct {
	looks.Looks
	events *pubsub.Watch
	took   time.Duration // by the last attempt with an answer, at most mostTime
}

// questions has the times at which a waiter asks; zero for never.
type questions struct {
	last time.Time // for the error
	warn time.Time // for the log
}

// handedOver is the outcome of a hand-over for the waiter.
type handedOver struct {
	granted bool
	owner   string // the owner of the continuing hold; "" for the waiter's own
	unknown bool   // no reply, or an unexpected reply
	start   clock.Instant
	token   int64
	latch   string // an undo leaves this key
	last    int64  // the latest time at which the hand-over may take effect
	series  turns.Series
}

// shareGrant signals the waiters able to share the lock just acquired by r: all waiters of a kind for everybody, and waiters
// of the same owner for other kinds.
func (r *request) shareGrant() {
	c := r.client
	all := r.target.kind.others == everybody
	if !all && r.state == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	key := r.target.key()
	if e := c.table.entries[key]; e != nil {
		for w := e.first; w != nil; w = w.next {
			if all || w.state == r.state {
				notify(w.look)
			}
		}
	}
	if r.state == nil {
		return
	}
	for _, p := range r.state.queued {
		if p.key == key && p.look != r.look {
			notify(p.look)
		}
	}
}

// notify sends a signal to a channel of capacity 1. A second signal before a receive has no effect.
func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
