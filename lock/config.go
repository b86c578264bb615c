package lock

import (
	"log/slog"
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

	// RenewBatch is how many locks one renewal script takes at most, during which the server does nothing else. 0 is 100;
	// the most is 1000.
	RenewBatch int

	// PlainTokens makes the tokens of [Fenced] locks count 1, 2, 3, as Redisson's do. They start again at 1 when the server
	// has lost its data. Do not go from the other tokens back to these while anybody compares them.
	PlainTokens bool

	// Logger is told, at Warn, of locks that were lost and of renewals that fail or run late. Names of locks are not
	// logged. nil is silent.
	Logger *slog.Logger
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Lease < MinLease:
		return invalidf("Lease of %v, less than %v", c.Lease, MinLease)
	case c.RenewEvery < time.Millisecond || c.RenewEvery >= c.Lease:
		return invalidf("RenewEvery of %v with a Lease of %v", c.RenewEvery, c.Lease)
	case c.RenewBatch < 0 || c.RenewBatch > 1000:
		return invalidf("RenewBatch of %d", c.RenewBatch)
	}
	return nil
}

// Option changes one Lock or TryLock. Make one with [For] or [As].
type Option struct {
	lease    time.Duration
	hasLease bool
	owner    *ownerState
	hasOwner bool
}

// For asks for a fixed lease: the lock is free after d even if its holder never releases it, and no watchdog extends it.
// d counts in whole milliseconds and is at least [MinLease].
func For(d time.Duration) Option { return Option{lease: d, hasLease: true} }

// As takes the lock as owner: at once, for a further hold, where owner has it already. Without As each Lease has an
// owner of its own.
func As(owner Owner) Option { return Option{owner: owner.state, hasOwner: true} }

// request is one Lock or TryLock, or what a kind without leases has in their place.
type request struct {
	target   *target
	lease    time.Duration
	renewed  bool
	owner    string
	state    *ownerState // of the Owner that was passed, or of a waiter that the server has in its line; else nil
	latch    string      // of the last attempt, if it has one: what undoes it leaves this key
	refused  bool        // the server has said no, or too late
	waits    bool        // for its turn, until it is withdrawn
	since    time.Time   // when it began to wait
	deadline time.Time   // of the context; zero if there is none
	got      *Lease      // once granted
	via      conn.Doer   // sends the acquire; nil: the client's server
}

func (c *Client) newRequest(t *target, opts []Option) (request, error) {
	r := request{target: t, lease: c.cfg.Lease, renewed: true}
	for _, o := range opts {
		if o.hasLease {
			r.lease, r.renewed = o.lease.Truncate(time.Millisecond), false
			if r.lease < MinLease {
				return r, invalidf("lease of %v, less than %v", o.lease, MinLease)
			}
		}
		if o.hasOwner {
			if o.owner == nil || o.owner.client != c {
				return r, invalidf("the Owner was not made by this Client")
			}
			r.state = o.owner
		}
	}
	if r.state == nil && t.kind.queued {
		r.state = c.NewOwner().state
	}
	r.owner = c.newOwner(r)
	return r, nil
}

// newOwner returns who r is to the server: the Owner that was passed or, without one, somebody new.
func (c *Client) newOwner(r request) string {
	k := r.target.kind
	switch {
	case r.state != nil && k.suffix == "":
		return r.state.id
	case r.state != nil:
		return r.state.id + k.suffix
	case k.owner != nil:
		return k.owner(c, r)
	case k.suffix == "":
		return c.nextOwner()
	}
	return c.nextOwner() + k.suffix
}
