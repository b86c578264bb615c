package lock

import (
	"math"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// MinLease is the shortest lease that can be asked for. A shorter one would be over before its holder could use it.
const MinLease = 10 * time.Millisecond

// Config configures a [Client]. The zero Config is ready to use.
type Config struct {
	// Lease is how long the server keeps a lock that the watchdog looks after, counted from the last renewal: the time
	// for which a lock stays taken after its holder has died. 0 is 30 s, as in Redisson (lockWatchdogTimeout).
	Lease time.Duration

	// RenewEvery is how often the watchdog renews. 0 is a third of Lease; it has to be shorter than Lease, and a
	// millisecond at least.
	RenewEvery time.Duration

	// RenewBatch is how many locks one renewal script takes at most, or permits, if those are not all of one lease. The server
	// does nothing else while it runs. 0 is 100; the most is 1000.
	RenewBatch int

	// PreferWriters has a writer of a [ReadWrite] lock that waits say so on the server, and readers that do not have the
	// lock yet wait behind it, in all clients that are so configured. It is off by default, and readers come and go
	// while a writer waits, for ever if there are enough of them. Redisson's readers do not see it, nor do its writers
	// say anything. A writer that dies while it waits keeps readers out for 15 s.
	PreferWriters bool

	// FairWait is for how long at most a waiter in the queue of a [Fair] lock counts as alive without being heard of. The
	// clients of this package look every few seconds and put a waiter's time off by themselves; of a waiter that has died
	// its place is free then even if nobody finds out sooner. 0 is 5 minutes, as in Redisson (fairLockWaitTimeout); the
	// least is 30 s.
	FairWait time.Duration

	// PlainTokens makes the tokens of [Fenced] locks count 1, 2, 3, as Redisson's do. They start again at 1 when the server
	// has lost its data. Do not go from the other tokens back to these while anybody compares them.
	PlainTokens bool

	// Publish is by which channels waiters are woken. All clients of a lock have to use the same; the zero value is what
	// Redisson's clients do by themselves.
	Publish Publishing

	// Acks is how many replicas have to have a lock before whoever acquires it gets it, and the renewal of one before it counts. If
	// that are too few within AckTimeout, the acquire is undone: TryLock returns a [*NotReplicatedError], and Lock goes on for as
	// long as its context allows.
	//
	// The zero value, AcksAuto, is all replicas that could become the master: nobody but the sentinels or the other nodes
	// decides which one does, and until they have told the former master it goes on with the others. With fewer two may have one
	// lock whenever a server has two replicas or more. Redisson asks for one, which is Acks: 1.
	//
	// How many replicas there are is told by the nodes of a cluster, or by Sentinel: a replica that is dead or hangs counts until
	// they have found that out (cluster-node-timeout; 5 s or down-after-milliseconds), and one that is back counts at once. Until
	// then nobody gets a lock on that shard, and a lease that ends before that is lost. One that the server is sending all its data
	// does not count. When a shard has had no replica for three AckTimeouts, or none since the Client's Server was opened,
	// AcksAuto and AcksMajority go on without: each lock is granted only if the server says in the same write that it has none,
	// and others said so, and that it is the master, less than half a second before. Such grants are counted in [Stats], and the
	// Logger is told. A number above 0 always means that many: where there are not so many replicas, there are no locks.
	//
	// A lock can be lost in a failover all the same, to a replica that was down, or had not all the data yet, and is made the master
	// as soon as it is back: its holder is told at the next renewal, and Fenced tells the resource. A server that was named by its
	// address counts its own replicas for AcksMajority.
	Acks Acks

	// Standalone says that the Server is a single one, that no replica ever takes its place, where it does not say so itself: see
	// [Server].
	Standalone bool

	// AckTimeout is how long an acquire waits for replicas. 0 is 1 s, as in Redisson (slavesSyncTimeout).
	AckTimeout time.Duration

	// HandOvers is how many times in a row a lock that is given back is handed over to the next caller in line of the same
	// process, before other processes get their turn: a [Reentrant] or [NonReentrant] lock that is renewed without asking the server,
	// which keeps its owner and its lease, any other by one script in which it never is free. Where the one server there is says
	// that no other process listens for the lock, only HandOverFor is a bound, as those who do not listen may want it too. It
	// concerns [Reentrant], [NonReentrant] and [Fenced] locks that are taken without an Owner. 0 is 16, below 0 is never.
	HandOvers int

	// HandOverFor is for how long, from when the process got the lock, it may be handed over; a third of a lease at most. A
	// lock that is held for longer than that never is, since then a hand-over saves next to nothing. 0 is 25 ms.
	HandOverFor time.Duration

	// Logger is told of locks that were lost, of renewals that fail or run late, and of rules that the user lacks for the
	// channels of locks: without these waiters are not woken. With a Logger the server is asked once whether the user may
	// publish on them. Names of locks are not
	// logged. nil is silent.
	Logger conn.Logger
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	c.Lease = c.Lease.Truncate(time.Millisecond)
	if c.RenewEvery == 0 {
		c.RenewEvery = c.Lease / 3
	}
	if c.RenewBatch == 0 {
		c.RenewBatch = 100
	}
	if c.FairWait == 0 {
		c.FairWait = 5 * time.Minute
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = time.Second
	}
	if c.HandOvers == 0 {
		c.HandOvers = 16
	}
	if c.HandOverFor == 0 {
		c.HandOverFor = 25 * time.Millisecond
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Lease < MinLease:
		return invalidf("Lease of %v, less than %v", c.Lease, MinLease)
	case c.RenewEvery < time.Millisecond || c.RenewEvery >= c.Lease:
		return invalidf("RenewEvery of %v with a Lease of %v", c.RenewEvery, c.Lease)
	case c.Acks < AcksMajority:
		return invalidf("Acks of %d", c.Acks)
	case c.AckTimeout < time.Millisecond:
		return invalidf("AckTimeout of %v", c.AckTimeout)
	case c.HandOverFor < 0:
		return invalidf("HandOverFor of %v", c.HandOverFor)
	case c.Publish < PublishAuto || c.Publish > PublishSharded:
		return invalidf("Publish of %d", c.Publish)
	case c.RenewBatch < 0 || c.RenewBatch > 1000:
		return invalidf("RenewBatch of %d", c.RenewBatch)
	case c.FairWait < minFairWait:
		return invalidf("FairWait of %v, less than %v", c.FairWait, minFairWait)
	}
	return nil
}

// Option changes one Lock or TryLock. Make one with [For], [As], [WaitForSetup] or [Forever].
type Option struct {
	lease    time.Duration
	hasLease bool
	owner    *ownerState
	hasOwner bool
	permits  int
	setup    bool
	forever  bool
}

// For asks for a fixed lease: the lock is free after d even if its holder never releases it, and no watchdog extends it.
// d counts in whole milliseconds and is at least [MinLease].
func For(d time.Duration) Option { return Option{lease: d, hasLease: true} }

// As takes the lock as owner: at once, for a further hold, where owner has it already. Without As each Lease has an
// owner of its own.
func As(owner Owner) Option { return Option{owner: owner.state, hasOwner: true} }

// WaitForSetup makes the Acquire of a semaphore that nobody has set up wait until somebody does, instead of returning
// [ErrNotSet]. To TryAcquire such a semaphore is then one without a free permit.
func WaitForSetup() Option { return Option{setup: true} }

// Forever asks a [PermitSemaphore] for permits that stay taken until they are released: no lease ends them, and if their
// holder dies they are lost until somebody releases them by their ids. Redisson's Acquire without a lease does this.
func Forever() Option { return Option{lease: forever, hasLease: true, forever: true} }

// forever is the lease of permits that have none, in whole milliseconds.
const forever = math.MaxInt64 / time.Millisecond * time.Millisecond

// request is one Lock or TryLock, or what a kind without leases has in their place.
type request struct {
	target   *target
	lease    time.Duration
	owner    string
	state    *ownerState               // of the Owner that was passed, or of a waiter that the server has in its line; else nil
	latch    string                    // of the last attempt, if it has one: what undoes it leaves this key
	failure  error                     // of the last attempt, if that had no answer
	short    error                     // of the last attempt that had one, if too few replicas acknowledged it
	look     chan struct{}             // has room for one: another one has got what this one may have too; nil if that cannot be
	since    time.Time                 // when it began to wait
	late     time.Time                 // since when all it was granted came too late
	deadline time.Time                 // of the context; zero if there is none
	got      *Lease                    // once granted
	seen     sighting                  // of a parked watch, before the first attempt
	series   series                    // of hand-overs that the grant belongs to
	last     int64                     // until when what was sent may take effect, by the server's clock, in ms
	permits  int                       // of a kind that has permits
	via      func(conn.Doer) conn.Doer // what sends the acquire in the place of another; nil: the other
	renewed  bool                      // is the lease to be, by the watchdog
	refused  bool                      // the server has said no, or too late
	waits    bool                      // for its turn, until it is withdrawn
	tells    bool                      // that it waits
	asked    bool                      // the server, once at least
	unsure   bool                      // an earlier attempt had no answer; the next one has the same latch
	setup    bool                      // waits for permits to be set up
}

func (c *Client) newRequest(t *target, opts []Option) (r request, err error) {
	err = c.fill(&r, t, opts)
	return r, err
}

// fill makes r the request of a call with these options.
func (c *Client) fill(r *request, t *target, opts []Option) error {
	*r = request{target: t, lease: c.cfg.Lease, renewed: true, tells: t.kind.tells && c.cfg.PreferWriters}
	for _, o := range opts {
		if err := o.check(t.kind); err != nil {
			return err
		}
		r.permits, r.setup = r.permits+o.permits, r.setup || o.setup
		if o.hasLease {
			r.lease, r.renewed = o.lease.Truncate(time.Millisecond), false
			if r.lease < MinLease {
				return invalidf("lease of %v, less than %v", o.lease, MinLease)
			}
		}
		if o.hasOwner {
			if o.owner == nil || o.owner.client != c {
				return invalidf("the Owner was not made by this Client")
			}
			r.state = o.owner
		}
	}
	if r.state == nil && t.kind.queued {
		r.state = c.NewOwner().state
	}
	r.owner = c.newOwner(r)
	return nil
}

// check refuses what means nothing to a kind.
func (o Option) check(k *kind) error {
	switch {
	case o.setup && !k.permits:
		return invalidf("WaitForSetup of what has no permits")
	case o.forever && (!k.permits || k.unowned):
		return invalidf("Forever of what is no PermitSemaphore")
	case o.hasLease && k.unowned:
		return invalidf("a lease of what has none")
	case o.hasOwner && (k.permits || k.unowned):
		return invalidf("an Owner of what has none")
	}
	return nil
}

// newOwner returns who r is to the server: the Owner that was passed or, without one, somebody new.
func (c *Client) newOwner(r *request) string {
	k := r.target.kind
	switch {
	case r.state != nil && k.suffix == "":
		return r.state.id
	case r.state != nil:
		return r.state.id + k.suffix
	case k.owner != nil:
		return k.owner(c, *r)
	case k.suffix == "":
		return c.nextOwner()
	}
	return c.nextOwner() + k.suffix
}
