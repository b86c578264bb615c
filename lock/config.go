package lock

import (
	"cmp"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/processes"
)

// Config configures a [Client]. The zero Config is ready to use.
type Config struct {
	// Lease is the lease of a lock under the watchdog, counted from the last renewal: after the death of its holder a
	// lock stays taken for up to this time. Lease counts in whole milliseconds, from [MinLease] to 50 years. 0 is 30 s, as
	// in Redisson (lockWatchdogTimeout).
	Lease time.Duration

	// RenewEvery is the interval between renewals by the watchdog. 0 is a third of Lease. RenewEvery must be at least
	// a millisecond and shorter than Lease.
	RenewEvery time.Duration

	// RenewBatch is the maximum number of locks and permits per renewal script; the permits of a single lease always
	// stay together. The server does nothing else while a script runs. 0 is 100; the maximum is 1000.
	RenewBatch int

	// PreferWriters lets the waiting writers of a [ReadWrite] lock pass all readers who wait, and announce themselves on the
	// server. Enough writers then keep readers waiting for ever, and writers of clients without this setting too: set it for all
	// clients of a lock. By default readers and writers have the lock in the order of their arrival.
	//
	// Redisson's readers ignore the announcement, and Redisson's writers make none. A writer that dies while waiting
	// keeps new readers of clients with this setting out for 15 s.
	PreferWriters bool

	// FairWait is the time after which a waiter in the queue of a [Fair] lock counts as dead unless heard from.
	// Clients of this package look every few seconds and extend the deadlines of their waiters. FairWait bounds how
	// long a dead waiter keeps its place if nobody notices the death earlier. 0 is 5 minutes, as in Redisson
	// (fairLockWaitTimeout); the minimum is 30 s.
	FairWait time.Duration

	// PlainTokens makes the tokens of [Fenced] locks count 1, 2, 3, as in Redisson. Plain tokens start again at 1
	// after the server has lost its data. Do not switch back to plain tokens while any resource compares tokens.
	PlainTokens bool

	// TokenLife is how long the server keeps the counter of a [Fenced] lock after the last token, for programs with ever
	// new names of locks. 0 is for ever. Tokens go on growing after the end of the counter, as a token is no less than the
	// server's time, and the counter ends TokenLife after the time in the last token. Exceptions:
	//
	//   - A clock set back, or the clock of a server that takes over and is behind, by more than TokenLife, at once or
	//     in several steps. The counter would have prevented the smaller token.
	//   - Clients that count by the counter alone: Redisson's and those with PlainTokens. They begin again at 1 after the end
	//     of the counter. Do not set TokenLife for locks that they take.
	//   - Clients with different settings: that of the last token counts, so the shortest one decides what is safe.
	//
	// TokenLife is a day or more, for example, and at least Lease. Token and Info return 0 after the end of the counter.
	TokenLife time.Duration

	// Publish selects the channels that wake waiters. All clients of a lock must use the same setting. The zero value
	// matches the default of Redisson's clients.
	Publish Publishing

	// Acks is the number of replicas that must acknowledge an acquire before Lock or TryLock returns, and a renewal
	// before it counts. If fewer do so within AckTimeout, the acquire is undone: TryLock returns a
	// [*NotReplicatedError], and Lock tries again for as long as its context allows.
	//
	// The zero value, AcksAuto, requires all replicas that could become the master. The sentinels or the other nodes
	// of a cluster choose the new master, and until the former master hears of the choice it continues with the
	// remaining replicas. With fewer acknowledgements, two owners may have one lock whenever a server has two or more
	// replicas. Redisson requires one acknowledgement, like Acks: 1.
	//
	// The nodes of a cluster, or Sentinel, report the number of replicas:
	//
	//   - A replica that is dead or hangs counts until the failure is detected (cluster-node-timeout; 5 s or
	//     down-after-milliseconds). Until then nobody acquires a lock on the shard, and a lease that ends before then
	//     is lost.
	//   - A replica that has returned counts at once.
	//   - A replica does not count during a full synchronization. In the first seconds in which it loads the data, it does.
	//
	// AcksAuto and AcksMajority continue without replicas after a shard has had none for three AckTimeouts, or none
	// since the Client's Server was opened. Each lock is then granted only if the server reports in the same write
	// that no replica is connected, and if other nodes, less than half a second before, reported the same and
	// confirmed the server as the master. [Stats] counts such grants, and the Logger reports them. A number above 0
	// always requires at least so many replicas: with fewer replicas there are no locks.
	//
	// A failover can still lose a lock, to a replica that was down or incompletely synchronized and becomes the
	// master as soon as it returns. The holder learns of the loss at the next renewal, and the token of a Fenced lock
	// protects the resource. For AcksMajority, a server named by its address counts its own replicas.
	Acks Acks

	// Standalone asserts that the Server is a single server and no replica ever replaces it, for a Server that does
	// not report this itself: see [Server].
	Standalone bool

	// AckTimeout is the maximum wait of an acquire for replicas. 0 is 1 s, as in Redisson (slavesSyncTimeout). A call whose
	// context ends earlier waits for three quarters of the time left.
	AckTimeout time.Duration

	// HandOvers limits how many times in a row a released lock passes to the next waiter of the same process before
	// other processes get a turn. 0 is 16; below 0 disables hand-overs. Hand-overs apply to [Reentrant],
	// [NonReentrant], [Fenced] and write locks taken without an Owner:
	//
	//   - A Reentrant, NonReentrant or write lock under the watchdog is handed over without asking the server, and keeps
	//     its owner and its lease.
	//   - Any other lock is handed over by one script, during which the lock is never free.
	//   - Not handed over: a write lock with a fixed lease, or with PreferWriters.
	//
	// If a single server reports that no other client waits for the lock, HandOverFor alone limits the series, since
	// a client may want the lock without waiting. Beside waiting clients of Redisson, a series has no more hand-overs than
	// callers wait in the process: these clients need milliseconds for a turn, in which a process could pass the lock on
	// hundreds of times.
	HandOvers int

	// HandOverFor limits the duration of a series of hand-overs, from when the process acquired the lock; a third of
	// a lease is the maximum. A lock held for longer than HandOverFor is never handed over, since the hand-over would
	// save next to nothing. 0 is 25 ms.
	HandOverFor time.Duration

	// Name names the process in CLIENT LIST: the connections of the Client's Server get the name Name, a colon, and the
	// Client's ID, by which an owner of a lock leads to a process, an address and an age. Name is printable ASCII without
	// spaces and commas. "" is the environment's POD_NAME or, without one, the host's name and the process id. With
	// conn.Config.NoIdentity connections have no names.
	Name string

	// AtMost is the default of the option [AtMost]: no lock is held for longer. 0 is no limit.
	AtMost time.Duration

	// StopBefore is the default of the option [StopBefore]: contexts of leases end so long before the lease could. 0 is no
	// time. StopBefore must be shorter than the part of Lease that is left when a renewal is due. A lease set by [For]
	// must be longer, or set its own StopBefore.
	StopBefore time.Duration

	// WarnAfter is the time after which the Logger reports a wait, with the holder if known, a lock acquired after a longer
	// wait, and a lock held for longer. A long hold is reported at a renewal and at Unlock. Calls with
	// [Standby], and those that wait for a [CountDownLatch], are not reported. 0 is never.
	WarnAfter time.Duration

	// Logger reports lost locks, failed or late renewals, and missing permissions of the user for the channels of
	// locks, without which waiters are not woken. With a Logger, the Client asks the server, once for each kind of
	// channel, whether the user may publish. A line about a lock has its name and kind, and the owner and the age of
	// the lease where they are known. A line about several locks, such as failed renewals, has one of them and their
	// number. No line about locks is repeated within a minute. The Logger also reports the loss and the return of the
	// connection for wake-ups, as pubsub.Config says. nil is silent.
	Logger conn.Logger

	// ShowName, if set, returns what errors and the log show in place of the name of a lock, to hide names or a part of
	// them. The Name fields of errors, String and LogValue of a Lease, and package leader have the name all the same.
	// ShowName must be safe for concurrent use. nil shows the name, in errors quoted.
	ShowName func(name string) string

	// Trace, if set, receives events about locks.
	Trace *Trace
}

// minFairWait is several times the longest interval between two signs of life of a waiter.
const minFairWait = 30 * time.Second

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	if c.Lease > MinLease { // the error of a shorter one has it as it was given
		c.Lease = c.Lease.Truncate(time.Millisecond)
	}
	c.RenewEvery = cmp.Or(c.RenewEvery, c.Lease/3)
	c.RenewBatch = cmp.Or(c.RenewBatch, 100)
	c.FairWait = cmp.Or(c.FairWait, 5*time.Minute)
	c.AckTimeout = cmp.Or(c.AckTimeout, time.Second)
	c.HandOvers = cmp.Or(c.HandOvers, 16)
	c.HandOverFor = cmp.Or(c.HandOverFor, 25*time.Millisecond)
	if c.Name == "" {
		c.Name = processes.DefaultName()
	}
	return c
}

func (c Config) validate() error {
	if err := checkTerm("Lease", c.Lease); err != nil {
		return err
	}
	switch {
	case c.RenewEvery < time.Millisecond || c.RenewEvery >= c.Lease:
		return invalidf("RenewEvery of %v with a Lease of %v", c.RenewEvery, c.Lease)
	case c.TokenLife < 0 || c.TokenLife > 0 && c.TokenLife < c.Lease:
		return invalidf("TokenLife of %v with a Lease of %v", c.TokenLife, c.Lease)
	case c.TokenLife > 0 && c.PlainTokens:
		return invalidf("TokenLife with PlainTokens, which would begin again at 1")
	case c.Acks < AcksMajority:
		return invalidf("Acks of %d", c.Acks)
	case c.AckTimeout < time.Millisecond:
		return invalidf("AckTimeout of %v", c.AckTimeout)
	case c.WarnAfter < 0:
		return invalidf("WarnAfter of %v", c.WarnAfter)
	case c.HandOverFor < 0:
		return invalidf("HandOverFor of %v", c.HandOverFor)
	case c.Publish < PublishAuto || c.Publish > PublishSharded:
		return invalidf("Publish of %d", c.Publish)
	case c.RenewBatch < 0 || c.RenewBatch > 1000:
		return invalidf("RenewBatch of %d", c.RenewBatch)
	case strings.ContainsFunc(c.Name, func(r rune) bool { return !processes.InName(r) }):
		return invalidf("Name with a comma, a space, or a character that is not printable ASCII")
	case c.FairWait < minFairWait:
		return invalidf("FairWait of %v, less than %v", c.FairWait, minFairWait)
	}
	return c.limits().check(c.Lease, c.RenewEvery)
}

// limits returns the limits of leases without options.
func (c *Config) limits() limits { return limits{atMost: c.AtMost, stopBefore: c.StopBefore} }
