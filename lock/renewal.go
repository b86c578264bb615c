package lock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// answer is the server's reply to the renewal of a lease, or the error.
type answer struct {
	lease   *Lease
	outcome int64 // 1 renewed, 0 gone, -1 held by another owner
	err     error
}

// askRenewals renews leases on a single server; with look it only asks whether the leases could be renewed. It returns an
// answer per lease, in any order, and the error of the batches. Locks of the same slot and script share a call. While a
// slot migrates, its keys may be on two nodes, and both refuse a shared call; then askRenewals makes a call per lock.
//
// If replicas acknowledge acquires, they also acknowledge renewals, all at once. An unacknowledged renewal is an error,
// because the next master might end the lease before the holder does.
func (w *watchdog) askRenewals(ctx context.Context, leases []*Lease, look bool) ([]answer, error) {
	batches, calls := w.callsFor(leases, look)
	answers, err := w.runRenewals(ctx, batches, calls, look)
	if err != nil {
		return answers, err
	}
	var known []answer
	var alone [][]*Lease
	calls = nil
	for _, batch := range batches {
		for range batch {
			a := answers[0]
			answers = answers[1:]
			if len(batch) == 1 || !remote.Refused(a.err) {
				known = append(known, a)
				continue
			}
			alone = append(alone, []*Lease{a.lease})
			calls = append(calls, renewCall(alone[len(alone)-1], look))
		}
	}
	if len(alone) == 0 {
		return known, nil
	}
	divided, err := w.runRenewals(ctx, alone, calls, look)
	return append(known, divided...), err
}

// runRenewals sends calls. calls[i] renews the leases of batches[i].
func (w *watchdog) runRenewals(ctx context.Context, batches [][]*Lease, calls []script.Call, look bool) ([]answer, error) {
	server, unacked := conn.Doer(w.client.server), error(nil)
	var ack *remote.Acked
	if w.client.replicas.On() && !look && len(batches) > 0 {
		var err error
		if ack, err = w.client.replicas.New(ctx, batches[0][0].target.name, time.Time{}); err != nil {
			err = notReplicated(err)
			return unanswered(batches, err), err
		}
		ack.Hurry(ctx)
		server = ack
	}
	replies, err := script.RunBatch(remote.Dividing(ctx), server, calls)
	switch {
	case ack == nil:
	case err != nil:
		return unanswered(batches, err), err
	default:
		_, unacked = ack.Confirm(remote.Patient(ctx))
		unacked = notReplicated(unacked)
	}
	var answers []answer
	for i, batch := range batches {
		for j, l := range batch {
			a := answer{lease: l}
			reply, failed := script.Outcome(replies, err, i)
			if a.err = failed; failed == nil {
				a.outcome, a.err = renewalOutcome(reply, j)
			}
			if a.err == nil && a.outcome == 1 {
				a.err = unacked
			}
			answers = append(answers, a)
		}
	}
	return answers, errors.Join(err, unacked)
}

// unanswered returns answers with err for all leases.
func unanswered(batches [][]*Lease, err error) (answers []answer) {
	for _, batch := range batches {
		for _, l := range batch {
			answers = append(answers, answer{lease: l, err: err})
		}
	}
	return answers
}

// callsFor returns the calls for renewing leases, and the leases of each call.
func (w *watchdog) callsFor(leases []*Lease, look bool) (batches [][]*Lease, calls []script.Call) {
	script := func(l *Lease) *script.Script { return l.target.kind.Renew }
	for _, same := range remote.Partition(leases, script) {
		batches = append(batches, w.renewalsOf(same)...)
	}
	for _, batch := range batches {
		calls = append(calls, renewCall(batch, look))
	}
	return batches, calls
}

// renewalsOf divides leases of the same script into batches, each renewable by a single call.
func (w *watchdog) renewalsOf(leases []*Lease) (batches [][]*Lease) {
	for _, part := range remote.BySlot(w.client.remote, leases, (*Lease).Name) {
		size := 0
		for i, l := range part {
			if size += l.size(); i == 0 || size > w.client.cfg.RenewBatch {
				batches, size = append(batches, nil), l.size()
			}
			last := &batches[len(batches)-1]
			*last = append(*last, l)
		}
	}
	return batches
}

// size returns the number of locks, permits or values of the lease.
func (l *Lease) size() int {
	switch k := l.target.kind; {
	case k.permits:
		return len(l.owner) / permitSize
	case k.parted:
		return strings.Count(l.owner, " ")
	}
	return 1
}

// lookOnly is the lease of a renewal without effect: every remaining lease is longer, and PTTL of a missing key is -2.
const lookOnly = -2

func renewCall(leases []*Lease, look bool) script.Call {
	if look {
		return renewFor(leases, lookOnly)
	}
	return renewFor(leases, leases[0].term.Milliseconds()) // constant for a lease under renewal
}

// renewFor returns a call that extends leases to ms from now.
func renewFor(leases []*Lease, ms int64) script.Call {
	keys := make([]string, len(leases))
	args := make([]any, 1, 1+len(leases))
	args[0] = ms
	for i, l := range leases {
		keys[i] = l.target.lease
		args = append(args, l.owner)
	}
	for _, l := range leases {
		keys = l.appendReadLeases(keys)
	}
	return leases[0].target.kind.Renew.Call(keys, args...)
}

// appendReadLeases appends the keys of the leases of a reader's holds.
func (l *Lease) appendReadLeases(keys []string) []string {
	if k := l.target.kind; !k.Reads || k.Suffix != "" {
		return keys
	}
	holds := int64(1)
	if l.state != nil {
		holds = max(holds, int64(len(l.client.table.holdsOf(l.target.hold(), l.owner, nil))))
	}
	return append(keys, kinds.ReadLeases(l.target.name, l.owner, holds)...)
}

var errRenewal = errors.New("lock: unexpected reply to renewal")

// renewalOutcome returns the script's result for its i-th lock: 1 renewed, 0 gone, -1 held by another owner.
func renewalOutcome(reply resp.Value, i int) (int64, error) {
	if err := reply.Err(); err != nil {
		return 0, err
	}
	if i >= reply.Len() {
		return 0, errRenewal
	}
	return reply.At(i).Int()
}
