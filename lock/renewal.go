package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/lock/internal/watchdog"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// renewals renews and checks leases for a client's watchdog: leases of one script and slot in one call, all calls in one write. While a slot
// migrates, and its nodes refuse a call, each lease gets a call of its own.
type renewals struct{ client *Client }

// watchdog returns the watchdog of the client, which hears of forced locks by listen; nil for never.
func (r renewals) watchdog(listen func() (*pubsub.Subscription, error)) *watchdog.Watchdog[*Lease] {
	c := r.client
	return watchdog.New(watchdog.Config[*Lease]{
		Leases: watchdog.Leases[*Lease]{
			Record:       func(l *Lease) *watchdog.Record[*Lease] { return &l.record },
			Name:         (*Lease).Name,
			Warn:         (*Lease).warnOfMany,
			Err:          (*Lease).Err,
			ValidUntil:   (*Lease).ValidUntil,
			Due:          (*Lease).dueBy,
			StopContexts: (*Lease).stopContexts,
			Begin:        (*Lease).beginRenewal,
			Extend:       (*Lease).renewedAt,
			End:          (*Lease).endRenewal,
			Denied:       (*Lease).notRenewed,
		},
		Term: c.cfg.Lease, Every: c.cfg.RenewEvery, Batch: c.cfg.RenewBatch, Life: c.life, Now: c.now, Server: c.remote,
		Acked: c.replicas.On(),
		Ask: func(ctx context.Context, leases []*Lease, check bool) []answer {
			if check {
				return r.ask(ctx, leases, checkOnly)
			}
			return r.ask(ctx, leases, c.cfg.Lease.Milliseconds())
		},
		Named:  c.table.leasesNamed,
		Listen: listen,
		Round:  r.traceRound(),
	})
}

// firstDue returns the time of the first renewal of a new lease, or the end of a lease without renewal.
func (l *Lease) firstDue() time.Time {
	if l.renewed {
		return l.dueBy(l.start.Time.Add(l.client.cfg.RenewEvery))
	}
	return l.dueBy(l.start.Time.Add(validity(l.term)))
}

// dueBy returns due, or the end by AtMost if earlier.
func (l *Lease) dueBy(due time.Time) time.Time {
	if l.limits[atMost] == 0 {
		return due
	}
	return clock.Earlier(due, l.grantedAt.Time.Add(l.limits[atMost]))
}

// beginRenewal marks a renewal as under way. It reports false if the lease is over, or another Extend is under way.
func (l *Lease) beginRenewal() bool {
	l.lockNow()
	defer l.mu.Unlock()
	if l.phase != held || l.renewal != nil {
		return false
	}
	l.renewal = make(chan struct{})
	return true
}

// warnOfMany logs a trouble of the lease and of others on the same server. err may be nil.
func (l *Lease) warnOfMany(err error, text string, args ...any) {
	if l.client.log.Silent() {
		return
	}
	server := ""
	if failed, ok := errors.AsType[*conn.Error](err); ok {
		server = failed.Addr
	}
	if err != nil {
		args = append(args, "error", err)
	}
	l.client.log.WarnOfMany(server, l.target.Name, l.Kind(), l.Owner(), text, l.logged(args)...)
}

// renewedAt records a successful renewal requested at start.
func (l *Lease) renewedAt(start clock.Instant) {
	l.countFrom(start, l.term)
	l.warnHeld()
}

// endRenewal ends the renewal under way. The lease reports failure as the cause if it ends before the next success.
func (l *Lease) endRenewal(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if failure != nil {
		l.failure = failure
	}
	switch {
	case failure == nil && l.phase == held && l.extending == 0: // countFrom has counted the renewal
	case failure == nil, mayExtend(failure):
		l.extendedTo = l.extendedToLocked()
	}
	l.extending = 0
	close(l.renewal)
	l.renewal = nil
}

// mayExtend reports whether the server may have extended a lease by a request that failed with err.
func mayExtend(err error) bool {
	return err != nil && (remote.Uncertain(err) || errors.Is(err, ErrNotReplicated))
}

// notRenewed ends the lease because the server has no such hold. taken: another owner has the lock. An answer about a reader says nothing
// about the Owner's other leases, as holds granted since are not in the request.
func (l *Lease) notRenewed(taken bool) {
	switch {
	case taken:
		l.denied(Taken, nil)
	case l.target.kind.isRead():
		l.revoke(Forced, nil)
	default:
		l.denied(Forced, nil)
	}
}

// answer is the server's reply to the renewal of a lease, or the error.
type answer = watchdog.Answer[*Lease]

// checkOnly, in place of a time in ms, makes a renewal that changes nothing: scripts only lengthen leases, and PTTL is -2 at least.
const checkOnly = -2

// ask extends leases on a single server to ms from now; with checkOnly it only asks whether the leases could be extended.
// It returns an answer per lease, in any order. Locks of the same slot and script share a call. While a slot migrates, its keys may be on two
// nodes, and both refuse a shared call; then ask makes a call per lock.
//
// If replicas acknowledge acquires, they also acknowledge renewals, all at once. An unacknowledged renewal is an error,
// because the next master might end the lease before the holder does.
func (r renewals) ask(ctx context.Context, leases []*Lease, ms int64) []answer {
	var asked []*Lease
	others := make(map[*Lease][]*Lease) // of each in asked
	for _, same := range remote.Partition(leases, askedAs) {
		asked = append(asked, same[0])
		others[same[0]] = same[1:]
	}
	batches := r.batches(asked)
	answers := r.run(ctx, batches, renewCalls(batches, ms), ms)
	answers = r.askElsewhere(ctx, answers, ms)
	for i, a := range answers {
		if remote.TryAgain(a.Err) && a.Lease.target.kind.isRead() {
			a = r.askByKeys(ctx, a.Lease, ms)
			answers[i] = a
		}
		for _, l := range others[a.Lease] {
			a.Lease = l
			answers = append(answers, a)
		}
	}
	return answers
}

// askedAs returns what leases with a common request have in common: the read holds of an Owner on a lock. A request for one of them names all,
// so requests for all would take time in the square of their number.
func askedAs(l *Lease) any {
	if l.state != nil && l.target.kind.isRead() {
		return [2]string{l.target.Name, l.owner}
	}
	return l
}

// askElsewhere asks again, slot by slot, for leases that a server has redirected: a batch with WAIT follows no redirection of a part. It returns
// answers with the new ones. Requests of the watchdog return at once, as the watchdog follows redirections itself.
func (r renewals) askElsewhere(ctx context.Context, answers []answer, ms int64) []answer {
	if ctx.Value(conn.NoRepeat) == true {
		return answers
	}
	var led []*Lease
	answers = slices.DeleteFunc(answers, func(a answer) bool {
		elsewhere := remote.Asks(a.Err) || remote.Moved(a.Err)
		if elsewhere {
			led = append(led, a.Lease)
		}
		return elsewhere
	})
	for _, part := range remote.BySlot(r.client.remote, led, (*Lease).Name) {
		answers = append(answers, r.askSingly(ctx, part, ms)...)
	}
	return answers
}

// askSingly asks for leases with a call for each.
func (r renewals) askSingly(ctx context.Context, leases []*Lease, ms int64) []answer {
	var batches [][]*Lease
	for _, l := range leases {
		batches = append(batches, []*Lease{l})
	}
	return r.run(ctx, batches, renewCalls(batches, ms), ms)
}

// readHold is the value of the key with the lease of a reader's hold.
const readHold = "1"

// askByKeys asks for the lease of a reader with a call for each key. While a slot migrates, the keys of a lock may be on two nodes, and a hold
// that has ended has no key on either: both refuse a call with several of them.
//
// The holds go first: until their leases are longer, other readers that leave may shorten the lock's.
func (r renewals) askByKeys(ctx context.Context, l *Lease, ms int64) (a answer) {
	k, alive := l.target.kind, false
	for _, key := range l.readLeases() {
		if a = r.askKey(ctx, l, k.RenewRead, key, readHold, ms); a.Err != nil {
			return a
		}
		alive = alive || a.Outcome == 1
	}
	if alive {
		return r.askKey(ctx, l, k.twin.Renew, l.target.renewKey, l.owner, ms)
	}
	a = r.askKey(ctx, l, k.twin.Renew, l.target.renewKey, l.owner, checkOnly) // another owner may have the lock
	a.Outcome = min(a.Outcome, 0)
	return a
}

// askKey extends the lease of a key that has the given owner.
func (r renewals) askKey(ctx context.Context, l *Lease, renew *script.Script, key, owner string, ms int64) answer {
	return r.run(ctx, [][]*Lease{{l}}, []script.Call{renew.Call([]string{key}, ms, owner)}, ms)[0]
}

// run sends calls. calls[i] renews the leases of batches[i]; the leases of a call that is refused because its keys are on two nodes get a call each.
func (r renewals) run(ctx context.Context, batches [][]*Lease, calls []script.Call, ms int64) []answer {
	var replies []resp.Value
	var err, unacked, failure error // err may have replies to some of the calls; failure is of all
	if r.client.replicas.On() && ms != checkOnly && len(batches) > 0 {
		replies, unacked, failure = r.runAcked(ctx, batches[0][0], calls)
	} else {
		replies, err = script.RunBatch(remote.Dividing(ctx), r.client.server, calls)
	}
	var answers []answer
	var divided []*Lease
	for i, batch := range batches {
		reply, failed := script.Outcome(replies, err, i)
		failed = cmp.Or(failure, failed)
		if len(batch) > 1 && remote.TryAgain(cmp.Or(failed, reply.Err())) {
			divided = append(divided, batch...)
			continue
		}
		for j, l := range batch {
			a := answer{Lease: l}
			a.Outcome, a.Err = renewalOutcome(reply, failed, j)
			if a.Err == nil && a.Outcome == 1 {
				a.Err = unacked
			}
			answers = append(answers, a)
		}
	}
	if len(divided) > 0 {
		answers = append(answers, r.askSingly(ctx, divided, ms)...)
	}
	return answers
}

// runAcked sends calls, of which first is a lease. unacked is why too few replicas have acknowledged them.
func (r renewals) runAcked(ctx context.Context, first *Lease, calls []script.Call) (replies []resp.Value, unacked, err error) {
	c := r.client
	ack, err := c.replicas.AckedDoer(ctx, remote.Hold{Name: first.target.Name, Kind: first.Kind(), Owner: first.Owner()}, time.Time{})
	if err != nil {
		return nil, nil, err
	}
	if replies, err = script.RunBatch(remote.Dividing(ctx), ack, calls); err != nil {
		return nil, nil, err
	}
	_, unacked = ack.Confirm(remote.Patient(ctx))
	return replies, unacked, nil
}

// batches divides leases into batches, each renewable by a single call: of one script and one slot.
func (r renewals) batches(leases []*Lease) (batches [][]*Lease) {
	for _, same := range remote.Partition(leases, func(l *Lease) *script.Script { return l.target.kind.Renew }) {
		for _, part := range remote.BySlot(r.client.remote, same, (*Lease).Name) {
			size := 0
			for i, l := range part {
				if size += l.size(); i == 0 || size > r.client.cfg.RenewBatch {
					batches, size = append(batches, nil), l.size()
				}
				last := &batches[len(batches)-1]
				*last = append(*last, l)
			}
		}
	}
	return batches
}

// size returns the number of locks, permits or values of the lease.
func (l *Lease) size() int {
	switch k := l.target.kind; {
	case k.permits:
		return len(l.owner) / permitSize
	case k.divisible:
		return strings.Count(l.owner, " ")
	}
	return 1
}

func renewCalls(batches [][]*Lease, ms int64) (calls []script.Call) {
	for _, batch := range batches {
		calls = append(calls, renewCall(batch, ms))
	}
	return calls
}

// renewCall returns a call that extends leases to ms from now.
func renewCall(leases []*Lease, ms int64) script.Call {
	var holds []string // of readers
	for _, l := range leases {
		holds = append(holds, l.readLeases()...)
	}
	keys := make([]string, len(leases), len(leases)+len(holds))
	args := make([]any, 1, 1+len(leases))
	args[0] = ms
	for i, l := range leases {
		keys[i] = l.target.renewKey
		args = append(args, l.owner)
	}
	return leases[0].target.kind.Renew.Call(append(keys, holds...), args...)
}

// readLeases returns the keys of the leases of a reader's holds, also of ended and of released ones that the server may still count.
func (l *Lease) readLeases() []string {
	if !l.target.kind.isRead() {
		return nil
	}
	holds := int64(1)
	if l.state != nil {
		holds = max(holds, l.tally().maxCount)
	}
	return kinds.ReadLeases(l.target.Name, l.owner, holds)
}

var errRenewal = errors.New("lock: unexpected reply to renewal")

// renewalOutcome returns the script's result for its i-th lock: 1 renewed, 0 gone, -1 held by another owner. err is that of the script.
func renewalOutcome(reply resp.Value, err error, i int) (int64, error) {
	if err = cmp.Or(err, reply.Err()); err != nil {
		return 0, err
	}
	if i >= reply.Len() {
		return 0, errRenewal
	}
	return reply.At(i).Int()
}

// traceRound returns the watchdog's callback after a round of renewals; nil if rounds are not traced.
func (r renewals) traceRound() func(watchdog.Round) {
	t := r.client.cfg.Trace
	if t == nil || t.Renewal == nil {
		return nil
	}
	return func(round watchdog.Round) {
		t.Renewal(RenewalInfo{
			Client:   r.client,
			Renewed:  round.Renewed,
			Failed:   round.Failed,
			Gone:     round.Gone,
			Lateness: round.Lateness,
			Lease:    r.client.cfg.Lease,
			Elapsed:  round.Elapsed,
		})
	}
}
