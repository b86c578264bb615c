package lock

import (
	"context"
	"errors"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// answer is what the server said to the renewal of one lease, or why it said nothing.
type answer struct {
	lease   *Lease
	outcome int64 // 1 renewed, 0 gone, -1 somebody else's
	err     error
}

// askRenewals asks one server for the renewal of leases, or whether they would be renewed if look says so. It returns an answer for each, in any order, and the error that was the
// end of the batches. Locks of one slot and script are in one call. While the slot migrates some of them may be on its old node
// and the others on its new one, which refuse such a call: then each lock has one of its own.
//
// Where acquires are acknowledged by replicas renewals are too, all at once, and one that is not is an error: the next master might
// let the lease end before its holder does.
func (c *Client) askRenewals(ctx context.Context, leases []*Lease, look bool) ([]answer, error) {
	batches, calls := c.renewals(leases, look)
	answers, err := c.runRenewals(ctx, batches, calls, look)
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
			if len(batch) == 1 || !refused(a.err) {
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
	divided, err := c.runRenewals(ctx, alone, calls, look)
	return append(known, divided...), err
}

// refused reports whether a server executed nothing since not all keys are there while their slot migrates.
func refused(err error) bool { return errors.Is(err, resp.ErrTryAgain) && !uncertain(err) }

// runRenewals sends calls, each for the leases of one of batches.
func (c *Client) runRenewals(ctx context.Context, batches [][]*Lease, calls []script.Call, look bool) ([]answer, error) {
	server, unacked := conn.Doer(c.server), error(nil)
	var ack *acked
	if c.acks && !look && len(batches) > 0 {
		var err error
		if ack, err = c.newAcked(ctx, batches[0][0].target.name); err != nil {
			return unanswered(batches, err), err
		}
		ack.hurry(ctx)
		server = ack
	}
	replies, err := script.RunBatch(c.dividing(ctx), server, calls)
	switch {
	case ack == nil:
	case err != nil:
		return unanswered(batches, err), err
	default:
		_, unacked = ack.confirm(c.patient(ctx))
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

// unanswered are the answers where there was none.
func unanswered(batches [][]*Lease, err error) (answers []answer) {
	for _, batch := range batches {
		for _, l := range batch {
			answers = append(answers, answer{lease: l, err: err})
		}
	}
	return answers
}

// renewals are the calls that renew leases, each with the leases that it is about.
func (c *Client) renewals(leases []*Lease, look bool) (batches [][]*Lease, calls []script.Call) {
	script := func(l *Lease) *script.Script { return l.target.kind.renew }
	for _, same := range partition(leases, script) {
		batches = append(batches, c.renewalsOf(same)...)
	}
	for _, batch := range batches {
		calls = append(calls, renewCall(batch, look))
	}
	return batches, calls
}

// renewalsOf parts leases of one script so that one call can renew those of each part.
func (c *Client) renewalsOf(leases []*Lease) (batches [][]*Lease) {
	for _, part := range c.bySlot(leases) {
		size := 0
		for i, l := range part {
			if size += l.size(); i == 0 || size > c.cfg.RenewBatch {
				batches, size = append(batches, nil), l.size()
			}
			last := &batches[len(batches)-1]
			*last = append(*last, l)
		}
	}
	return batches
}

// size is how many locks or permits the lease has.
func (l *Lease) size() int {
	if l.target.kind.parted {
		return len(l.owner) / permitSize
	}
	return 1
}

// lookOnly is the lease with which a renewal changes nothing, since none is shorter: PTTL is -2 where there is no key.
const lookOnly = -2

func renewCall(leases []*Lease, look bool) script.Call {
	keys := make([]string, len(leases))
	args := make([]any, 1, 1+len(leases))
	if args[0] = leases[0].term.Milliseconds(); look {
		args[0] = lookOnly
	}
	for i, l := range leases {
		keys[i] = l.target.lease
		args = append(args, l.owner)
	}
	for _, l := range leases {
		keys = l.appendReadLeases(keys)
	}
	return leases[0].target.kind.renew.Call(keys, args...)
}

// appendReadLeases appends the keys of the leases of a reader's holds.
func (l *Lease) appendReadLeases(keys []string) []string {
	if k := l.target.kind; !k.reads || k.suffix != "" {
		return keys
	}
	holds := int64(1)
	if l.state != nil {
		holds = max(holds, int64(len(l.client.holdsOf(l.target.hold(), l.owner, nil))))
	}
	return append(keys, readLeases(l.target.name, l.owner, holds)...)
}

var errRenewal = errors.New("lock: unexpected reply to renewal")

// renewalOutcome is what the script says about its i-th lock: 1 renewed, 0 gone, -1 somebody else's.
func renewalOutcome(reply resp.Value, i int) (int64, error) {
	if err := reply.Err(); err != nil {
		return 0, err
	}
	if i >= reply.Len() {
		return 0, errRenewal
	}
	return reply.At(i).Int()
}
