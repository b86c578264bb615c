package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// announceFor is the lifetime of a writer's announcement to readers, longer than the interval between announcements.
const announceFor = 15 * time.Second

// writeKind is the kind of the write lock. Its twin is the kind of the read lock.
var writeKind = &kinds.Lazy[*kind]{Make: func() *kind {
	read := &kind{
		Kind:       kinds.Read.Get(),
		args:       func(w wish) []any { return []any{w.preferWriters} },
		parse:      func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeRead) },
		afterGrant: wakeAll,
	}
	write := &kind{
		Kind:             kinds.Write.Get(),
		args:             writeArgs,
		parse:            func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeWrite) },
		twin:             read,
		reentersOnSource: true,
	}
	read.twin = write
	return write
}}

// ReadWrite is Redisson's RReadWriteLock (getReadWriteLock): a lock for many readers or a single writer. A ReadWrite is
// immutable, and many goroutines may share it.
//
// Waiting clients have the lock in the order of their arrival; readers one behind the other have the lock together. A
// new reader waits behind a waiting writer, and TryLock refuses it. A writer that has waited for readers for three seconds lets
// further readers in for two, as readers may wait for each other. The writer then keeps readers out for six seconds, twelve, and so on, and
// each time lets them in for half as long.
// [Config].PreferWriters lets writers pass readers who wait. Redisson's readers pass all who wait. See [ReadLock] for a caller
// with the read lock that takes it again.
//
// An [Owner] with the write lock may take the read lock too. It may then release the write lock and keep reading, or use
// [Lease.Downgrade]. An Owner with only the read lock would wait for itself; its request for the write lock returns
// [ErrUpgrade].
type ReadWrite struct {
	read  ReadLock
	write WriteLock
}

// ReadWrite returns the read-write lock with the given name. The name follows the same rules as for [Client.Reentrant].
func (c *Client) ReadWrite(name string) *ReadWrite {
	write := writeKind.Get()
	return &ReadWrite{ReadLock{c.handle(write.twin, name)}, WriteLock{c.handle(write, name)}}
}

// Name returns the lock's name.
func (l *ReadWrite) Name() string { return l.read.Name() }

// Read returns the read half. Many owners may hold the read half at once, while no other owner holds the write half. A
// caller that reads already needs an [Owner] to lock it again at once: see [ReadLock].
func (l *ReadWrite) Read() *ReadLock { return &l.read }

// Write returns the write half. A single owner holds the write half, while no other owner holds either half.
func (l *ReadWrite) Write() *WriteLock { return &l.write }

// ReadLock is the read half of a [ReadWrite] lock. Each reader has its own lease, and the lock is held until the last lease
// ends. Info lists the readers. ForceUnlock ends all readers' holds, and does nothing if a writer holds the lock.
//
// # Reading again
//
// A caller with the read lock that takes it again without an [Owner] is one more reader. While a writer waits, Lock waits
// behind the writer, and the writer waits for the first hold, until the writer lets readers in: for some three seconds, or for
// about as long again as the writer has waited. With [Config].PreferWriters neither goes on before a context or a lease ends, as
// with [sync.RWMutex]. TryLock returns [ErrNotAcquired] instead. Take both holds [As] the same Owner: further holds of an Owner
// pass all who wait.
type ReadLock struct{ Handle }

// WriteLock is the write half of a [ReadWrite] lock. Info lists the writer. ForceUnlock ends the writer's hold and the
// writer's own read holds, and does nothing if readers hold the lock.
type WriteLock struct{ Handle }

// ForceUnlock frees the lock if any writer holds it, and reports whether a writer did. The writer's own read holds end too.
// Holders are notified as described at [Handle.ForceUnlock].
func (l *WriteLock) ForceUnlock(ctx context.Context) (bool, error) {
	var beneath []*Lease
	read := entryKey{l.target.kind.twin, l.target.Name}
	for _, writer := range l.client.table.holdsOf(l.target.heldAs(), "", nil) {
		beneath = append(beneath, l.client.table.holdsOf(read, strings.TrimSuffix(writer.owner, kinds.WriteSuffix), nil)...)
	}
	forced, err := l.Handle.ForceUnlock(ctx)
	if forced {
		for _, reader := range beneath {
			reader.lose(Forced, nil)
		}
	}
	return forced, err
}

func writeArgs(w wish) []any {
	if w.announces {
		return []any{announceFor.Milliseconds()}
	}
	return []any{0}
}

// Downgrade turns a hold of a [WriteLock] into a hold of its [ReadLock], without a gap: other readers may enter, and
// no writer can hold the lock in between. The read lock has the same owner. If the watchdog renews the write lease,
// it also renews the read lease; otherwise the read lease ends when the write lease would have ended.
//
// Downgrade ends the write lease, and its contexts end as after Unlock, which then returns nil. The exception is an
// error because ctx had ended before anything was sent. If Downgrade fails otherwise, the caller holds nothing: the
// client releases in the background any hold that the server may still have, as after an Unlock with [ErrUncertain].
//
// Replicas acknowledge Downgrade as they acknowledge Lock (see Config.Acks). Without enough acknowledgements within
// Config.AckTimeout, Downgrade returns the read lease all the same, valid as long as the write lease was: nobody else can get the
// lock for writing before then, but after a failover the read lease may be lost. The next acknowledged renewal makes up for it.
//
// For any other lease, also one with Members, Downgrade returns [ErrInvalid]; for a lease that is over, the result of Err. Downgrade of a
// member loses the whole, as its release does.
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	if l.group != nil || l.target.kind.Downgrade == nil {
		return nil, l.client.invalid(l.target.Name, "only a write lock can be downgraded")
	}
	h := l.traced.Load()
	if h == nil {
		return l.downgrade(ctx)
	}
	// For the Trace a release of the write lock and an acquire of the read lock.
	begin := time.Now()
	ctx, a := h.trace.beginAcquire(ctx, AcquireStart{
		Client: l.client, Kind: l.target.kind.twin.Name, Name: l.Name(), Try: true, Lease: l.term, Renewed: l.renewed,
	})
	a.asked()
	read, err := l.downgrade(ctx)
	if l.Err() == ErrReleased && h.ended.CompareAndSwap(false, true) {
		ctx, release := h.beginRelease(ctx, begin, l)
		l.releasing.Lock()
		outcome, _ := l.course.Settled()
		l.releasing.Unlock()
		release.end(ctx, ReleaseEnd{Err: outcome, Lost: h.lost.Load()})
	}
	a.done(ctx, read, err)
	return read, err
}

// downgrade is Downgrade without a Trace.
func (l *Lease) downgrade(ctx context.Context) (*Lease, error) {
	c := l.client
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if err := l.Err(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, c.about(l.target.Name, netfail.Ended(ctx))
	}
	turn, err := l.state.take(ctx, l.target.Name, c.done, ErrClosed)
	if err != nil {
		return nil, c.about(l.target.Name, err)
	}
	if err := l.beginExtension(ctx); err != nil {
		turn.give()
		return nil, err
	}
	lost, _ := l.markReleased()
	l.endRenewal(nil)
	if lost != nil {
		turn.give()
		return nil, lost
	}
	l.client.watchdog.Remove(l)
	if !l.mayBeHeld() {
		turn.give()
		return nil, l.settle(l.notHeld())
	}
	measured := c.now() // before the rest of a fixed lease
	r := l.readRequest(turn)
	defer r.endTurn()
	if ctx.Done() == nil {
		ctx = c.untilCloseOnly(ctx)
	}
	v, start, short, err := l.askDowngrade(ctx, r)
	if err != nil {
		return nil, l.undoDowngrade(r, remote.Uncertain(err), serverError(err))
	}
	holds, writes, _, err := parseAcquire(v, l.state != nil)
	switch {
	case errors.Is(err, ErrNotHeld):
		l.recordEnd(false)
		r.endTurn()
		return nil, l.settle(l.notHeld())
	case err != nil || v.Kind() != resp.Array:
		return nil, l.undoDowngrade(r, false, fmt.Errorf("%w, of kind %v", errUnexpected, v.Kind()))
	}
	l.recordEnd(writes > 0)
	l.settle(nil)
	switch {
	case !l.renewed:
		start = measured
	case short: // a new master may know the write hold only
		start = l.now().start
	}
	if l.limits[atMost] > 0 {
		r.limits[atMost] = max(l.leftByAtMost(c.now()), MinLease)
	}
	if err := r.accept(grant{start: start, count: holds}); err != nil {
		return nil, err
	}
	r.got.mayLast(r.lease) // it may count from before the request
	return r.got, nil
}

// readRequest returns the request for a read hold in place of l, with the turn of the Owner.
func (l *Lease) readRequest(turn *ownedLock) *request {
	k := l.target.kind
	read := newTarget(k.twin, l.target.Name)
	r := &request{acquire: acquire{hold: hold{l.client, &read, l.state, strings.TrimSuffix(l.owner, k.Suffix)}, lease: l.term},
		renewed: l.renewed, limits: l.limits, turn: turn}
	if !l.renewed {
		r.lease = max(l.neededFor().Truncate(time.Millisecond), time.Millisecond)
	}
	r.latch = newLatch(r.target)
	return r
}

// askDowngrade asks for the read hold of r in place of l, and waits for replicas as an acquire does. short: too few have acknowledged it.
func (l *Lease) askDowngrade(ctx context.Context, r *request) (v resp.Value, sent clock.Instant, short bool, err error) {
	c, k := l.client, l.target.kind
	ack, shortage := r.acking(ctx)
	var x *remote.Call
	v, err = c.scripts.RunInTime(ctx, r.target.Name, func(last int64) *remote.Call {
		r.lastMoment = max(r.lastMoment, last)
		args := r.target.lineArgs(c, []any{r.lease.Milliseconds(), r.owner, c.publishing(r.target), l.leaseOfOthers(l), last})
		x = &remote.Call{Script: k.Downgrade, Lock: r.target.Lock, Keys: r.ownerKeys(r.latch), Args: args,
			Doer: r.doer(ack), Apart: remote.Apart{MayFree: true, MayRunUntil: r.turn.mayRun()}}
		return x
	})
	if ack != nil && err == nil {
		_, shortage = ack.Confirm(ctx)
	}
	return v, x.Sent, shortage != nil, err
}

// undoDowngrade releases both the write hold and the requested read hold in the background, with the owner's turn.
// late means that the downgrade may still arrive.
func (l *Lease) undoDowngrade(r *request, late bool, cause error) error {
	l.own().endHold(l.target.storedKind(), false)
	err := l.settle(l.unconfirmed(cause))
	write := &acquire{hold: l.hold, lease: l.term, latch: newLatch(l.target)}
	r.undoBoth(write, clock.Later(l.serverEnd(), r.goneBy(time.Now())), late)
	return err
}
