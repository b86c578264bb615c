package lock

import (
	"container/list"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/claim"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/pubsub"
)

// acquire has what the scripts of an acquire, of its undo, and of a hand-over to its caller need to know.
type acquire struct {
	hold
	lease   time.Duration
	permits int  // the number of permits, for a kind with permits
	setup   bool // waits for the setup of permits

	waits    bool      // waiting, until the waiter is withdrawn
	since    time.Time // the start of the wait
	deadline time.Time // of the context; zero if the context has none

	latch      string // the latch of the last attempt, or ""; an undo of the attempt leaves this key
	lastMoment int64  // of all requests sent: they do nothing afterwards, by the server's clock; in ms
}

// request is one Lock or TryLock, or the counterpart of a kind without leases.
type request struct {
	acquire

	// Constant.
	limits   limits
	renewed  bool                      // the watchdog is to renew the lease
	standby  bool                      // see Standby
	wrapDoer func(conn.Doer) conn.Doer // set for a vote of a Redlock: wraps the Doer that sends the acquire
	traced   *acquiring                // for the Trace; nil if not traced

	// beside is called at each attempt of a waiter for a Redlock; nil for others. It limits the attempt, whose end calls answered.
	beside func(context.Context) (limited context.Context, answered func(granted bool, err error))

	// The course of the attempts.
	turn   *ownedLock    // the turn of the Owner, during an attempt; nil without
	asked  bool          // at least one attempt may have reached the server, or given r a place in its queue
	unsure bool          // an earlier attempt had no reply; the next attempt uses the same latch
	landed time.Time     // with unsure: by then the earlier attempts have run, or never will
	place  any           // a place in the server's line that no waiter has yet; nil for none
	shared chan struct{} // capacity 1: signalled on a grant to another call of the Owner that this request may share; nil without an Owner
	got    *Lease        // the lease, once granted
	why    denial        // while there is no lease
}

// denial is why a request has no lease: gaveUp makes the error of it. A request that has asked nothing has the answer and the failure of
// the waiter at the front. failure counts only without an answer.
type denial struct {
	answer    error         // the last answer: ErrNotAcquired for a refusal or an expired grant, ErrNotReplicated, or nil for none
	failure   error         // of the last attempt; nil after a refusal
	leaseEnds time.Duration // the end of the lease last reported by a refusal, as clocks.Age; 0 if unknown
	holder    *seenHolder   // the last answer about a holder elsewhere, of a waiter in a queue; nil for none
}

func (d *denial) refused() bool { return d.answer == ErrNotAcquired }

// refuse records a refusal, or a grant that came too late.
func (d *denial) refuse() { d.answer = ErrNotAcquired }

// learnFrom records for a request in line what the waiter at the front knows. The caller has table.mu.
func (d *denial) learnFrom(line *entry) {
	if d.failure = line.failure; d.failure == nil {
		d.refuse()
	}
}

// changeFor limits the repeats of a change without a reply, and of the undo of an unanswered acquire of permits without a lease.
const changeFor = 5 * time.Minute

// fill makes r the request of a call with the given options, for a kind with permits of so many.
func (r *request) fill(c *Client, t *target, opts []Option, permits int) error {
	*r = request{acquire: acquire{hold: hold{client: c, target: t}, lease: c.cfg.Lease, permits: permits}, renewed: true, limits: c.cfg.limits()}
	if permits > 0 && t.kind.unowned() {
		r.lease = changeFor
	}
	for _, o := range opts {
		if err := o.check(t.kind); err != nil {
			return err
		}
		r.setup, r.standby = r.setup || o.setup, r.standby || o.standby
		if o.hasLease {
			if err := o.checkLease(); err != nil {
				return err
			}
			r.lease, r.renewed = o.lease.Truncate(time.Millisecond), false
		}
		r.limits[o.limit] = o.limitValue
		if o.hasOwner {
			if o.owner == nil || o.owner.client != c.id {
				return invalidf("the Owner was not made by this Client")
			}
			r.state = o.owner
		}
	}
	if err := r.checkLimits(); err != nil {
		return err
	}
	if r.state == nil && t.kind.queued() {
		r.state = c.NewOwner().state
		r.state.singleUse = true
	}
	if r.state != nil && t.values != "" { // in a common line the Owner could stand behind callers that wait for a value of its own
		own := *t
		own.lineName += " " + r.state.id
		r.target = &own
	}
	r.owner = r.newOwner()
	return nil
}

// newOwner returns the owner of a as stored on the server: that of the Owner passed by As, else a new one.
func (a *acquire) newOwner() string {
	k, id := a.target.kind, ""
	switch {
	case a.state != nil:
		id = a.state.id
	case k.owner != nil:
		return k.owner(a.permits)
	default:
		id = a.client.nextOwner()
	}
	if a.target.values != "" {
		return id + " " + a.target.values
	}
	return id + k.Suffix
}

// announces reports whether a wait is announced to the server.
func (a *acquire) announces() bool { return a.target.kind.isWrite() && a.client.cfg.PreferWriters }

// endTurn gives the turn of the Owner back, unless the undo of the attempt has taken it over.
func (r *request) endTurn() {
	r.turn.give()
	r.turn = nil
}

func (r *request) checkLimits() error {
	if r.target.kind.unowned() {
		return nil
	}
	if r.limits[atLeast] != 0 && r.state != nil {
		return invalidf("AtLeast with an Owner, who could take the lock again")
	}
	every := time.Duration(0)
	if r.renewed {
		every = r.client.cfg.RenewEvery
	}
	return r.limits.check(r.lease, every)
}

// keys appends the KEYS of acquire to dst, which is empty.
func (a *acquire) keys(dst []string) []string {
	switch t := a.target; {
	case t.kind.Reads:
		return a.ownerKeys(a.latch)
	case a.latch == "":
		return t.appendInfoKeys(dst)
	case t.kind.permits: // their grants call the next in the line
		return t.withLine(append(t.appendHandOverKeys(dst), a.latch))
	default:
		return t.withLine(append(t.appendInfoKeys(dst), a.latch))
	}
}

// args returns the ARGV common to all kinds, followed by the kind's own.
func (a *acquire) args(common ...any) []any {
	if own := a.target.kind.args; own != nil {
		return append(common, own(a.wish())...)
	}
	return common
}

// wish returns what the kind of a knows of a.
func (a *acquire) wish() wish {
	c, t := a.client, a.target
	w := wish{
		permits:       a.permits,
		setup:         a.setup,
		forever:       a.lease == forever,
		announces:     a.announces() && a.waits,
		publish:       c.publishing(t),
		preferWriters: c.cfg.PreferWriters,
		plainTokens:   c.cfg.PlainTokens,
		tokenLife:     c.cfg.TokenLife,
	}
	if t.kind.Token != nil {
		w.token = a.tally().token
	}
	if t.kind.queued() {
		w.wait, w.inQueue = a.queueWait(), a.inQueue()
	}
	return w
}

// endUnsure ends the doubt after a grant, or after the undo has begun.
func (r *request) endUnsure() {
	c := r.client
	if r.unsure {
		r.unsure = false
		c.acquires.Leave(r.permits)
	}
}

// newLatch returns a new latch for a request about t. As in Redisson, its end is the id of the request: 16 random bytes in hexadecimal.
func newLatch(t *target) string {
	var id [16]byte // guessing an id gains nothing, so math/rand is enough
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	var buf [128]byte
	return string(hex.AppendEncode(kinds.AppendLatch(buf[:0], t.Name), id[:]))
}

// inQueue reports whether a, or another call of its owner, waits in the queue of the lock. The request of a then keeps the owner's place
// for the other calls, so inQueue notes in each that it has a place to leave.
func (a *acquire) inQueue() (queued bool) {
	if a.waits || a.state == nil {
		return a.waits
	}
	a.client.table.mu.Lock()
	defer a.client.table.mu.Unlock()
	for i := range a.state.waiting {
		if q := &a.state.waiting[i]; q.target.awaitedAs() == a.target.awaitedAs() {
			q.asked, queued = true, true
		}
	}
	return queued
}

// queueWait returns the distance between a's deadline in the queue and the deadline of the waiter in front.
func (a *acquire) queueWait() time.Duration {
	if a.deadline.IsZero() {
		return a.client.cfg.FairWait
	}
	return max(min(a.deadline.Sub(a.since), a.client.cfg.FairWait), time.Millisecond)
}

// waiter is a waiting call of Lock. It stands in the line of its process or, if the server keeps the queue, alone in a line of its own.
//
// The caller sleeps in awaitFront until the waiter is at the front, and then in contend.
type waiter struct {
	request // a holder who has claimed the waiter reads it

	// Constant.
	left  time.Duration // remaining lease of the holder at the start of the wait, negative if unknown
	mark  watchMark     // of the parked watch, before the first attempt
	entry *entry        // entry of the line
	wake  chan struct{} // buffered, 1: signalled after a change of front, claim or head

	front atomic.Bool             // the waiter stands at the front
	claim claim.Claim[handedOver] // the agreement with a releasing holder, who changes it too

	questions    questions // owned by the waiter at the front
	expiredSince time.Time // the first grant that arrived expired, if all grants since then did so; owned by the waiter

	granted     <-chan struct{} // of entry, from before the last look; nil for a kind whose grants are not for all; owned by the waiter
	inLine      *list.Element   // the place in entry.waiters; nil for a queued kind, and after leave; owned by the waiter
	inWaiters   bool            // counted in Client.waiters; constant after newWaiter
	behindSetup bool            // stands behind a waiter for the setup of permits, and does not wait for the setup itself; constant after newWaiter
}

// head is the state of the front of a line. It passes from waiter to waiter with the front.
type head struct {
	looks.Looks
	events *pubsub.Watch
	took   time.Duration // duration of the last attempt with an answer, at most mostAttempt
}

// watchMark is a parked watch and the number of its events so far; zero for none.
type watchMark struct {
	watch  *pubsub.Watch
	events uint64
}

// unchanged reports whether watch is the same, is subscribed, and has no new events.
func (s watchMark) unchanged(watch *pubsub.Watch) bool {
	if s.watch != watch {
		return false
	}
	events, up := watch.Count()
	return up && events == s.events
}

// questions has the times at which a waiter asks; zero for never.
type questions struct {
	last time.Time // for the error
	warn time.Time // for the log
}

// grant is a lock that a request has got, from the server or by a hand-over.
type grant struct {
	start   clock.Instant // before the request
	count   int64         // the holds of the owner
	token   int64
	values  string       // of a group: those that the Owner did not have before, with spaces between them
	series  claim.Series // the series of hand-overs that includes the grant
	refused error        // why too few replicas have acknowledged the grant; nil if enough have
}

// handedOver is the outcome of a hand-over for the waiter.
type handedOver struct {
	grant
	granted    bool
	unknown    bool   // no reply, or an unexpected reply
	owner      string // the owner that stays on the server after a relay; "" after a hand-over
	latch      string // an undo leaves this key
	lastMoment int64  // of the hand-over; see acquire
}

// shareGrant signals the waiters able to share the lock just acquired by r: all waiters of a kind for everybody, and those of the same
// Owner, which may wait for the lock as another kind, or for its read half.
func (r *request) shareGrant() {
	c := r.client
	all := r.target.kind.afterGrant == wakeAll
	if !all && r.state == nil {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if e := c.table.entries[r.target.awaitedAs()]; e != nil && e.granted != nil && all {
		close(e.granted)
		e.granted = nil
	}
	if r.state == nil {
		return
	}
	for _, q := range r.state.waiting {
		if q.shared != r.shared && r.target.includes(q.target) {
			netfail.Signal(q.shared)
		}
	}
}
