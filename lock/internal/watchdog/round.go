package watchdog

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
)

// round is a round of requests to a server.
type round[L comparable] struct {
	server    *server[L]
	due       []L // to be renewed
	unchecked []L // to be checked

	begun bool // a renewal was sent
	Round
}

// run sends the requests of a round, and returns when all have ended.
func (w *Watchdog[L]) run(r *round[L]) {
	start := time.Now()
	var wg sync.WaitGroup
	if len(r.unchecked) > 0 {
		wg.Go(func() { w.check(r.unchecked) })
	}
	w.renew(r)
	wg.Wait()
	r.Elapsed = time.Since(start)
}

// renew renews the leases that are due, in a single write.
func (w *Watchdog[L]) renew(r *round[L]) {
	leases := r.due[:0]
	for _, l := range r.due {
		if w.cfg.Leases.Begin(l) {
			leases = append(leases, l)
		}
	}
	if len(leases) == 0 {
		return
	}
	r.begun = true
	start := w.cfg.Now()
	ctx, cancel := context.WithTimeout(w.cfg.Life, Limit(w.cfg.Term))
	defer cancel()
	answers, err := w.cfg.Ask(ctx, leases, false)
	failed := len(leases)
	if err == nil {
		failed, err = refusals(answers)
	}
	if err != nil && w.cfg.Life.Err() == nil {
		w.cfg.Leases.Warn(leases[0], err, "renewals fail, and are tried again", "leases", failed)
	}
	w.mu.Lock()
	r.server.paceLocked(err == nil, ctx.Err() != nil)
	w.mu.Unlock()
	late := start.Elapsed(w.cfg.Now()) > AnsweredLate
	for _, a := range answers {
		w.renewed(r, a, start, late)
	}
}

// refusals returns the number of leases that the server has not renewed for an error, and the first error.
func refusals[L comparable](answers []Answer[L]) (n int, first error) {
	for _, a := range answers {
		if a.Err != nil {
			n++
			first = cmp.Or(first, a.Err)
		}
	}
	return n, first
}

// errUnconfirmed marks a successful renewal awaiting confirmation by a second renewal.
var errUnconfirmed = errors.New("lock: renewed late or after a failure, and not confirmed")

// renewed records the outcome of a renewal. After a late answer or a failed renewal, a success may come from a server that
// hung and was replaced in the meantime. Unless replicas acknowledged the renewal, the success counts only if a second
// renewal, sent after the answer, succeeds too.
func (w *Watchdog[L]) renewed(r *round[L], a Answer[L], start clock.Instant, late bool) {
	l, failure := a.Lease, a.Err
	record := w.cfg.Leases.Record(l)
	done := failure == nil && a.Outcome == 1
	if done && !w.cfg.Acked() && record.trust != confirming && (late || record.trust == doubted) {
		failure = errUnconfirmed
	}
	switch {
	case failure == errUnconfirmed:
		record.trust = confirming
	case failure != nil:
		record.trust = doubted
		r.Failed++
		w.Errors.Add(1)
	case done:
		record.trust = trusted
		r.Renewed++
		w.Renewals.Add(1)
		w.cfg.Leases.Extend(l, start)
	}
	w.cfg.Leases.End(l, failure)
	if failure == nil && a.Outcome <= 0 {
		r.Gone++
		w.cfg.Leases.Denied(l, a.Outcome < 0)
	}
	if w.cfg.Leases.Err(l) == nil {
		w.again(l, start, failure)
	}
}

// again schedules the next renewal of a lease: a period after a success, sooner after a failure, at once if unconfirmed.
func (w *Watchdog[L]) again(l L, start clock.Instant, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.cfg.Leases.Record(l)
	if r.ended {
		return
	}
	switch {
	case failure == errUnconfirmed:
		w.pushLocked(r, time.Now())
	case failure != nil: // the lease is asked for anew in any case
		r.pause, r.news = min(max(2*r.pause, retryMin), retryMax), false
		w.pushLocked(r, time.Now().Add(r.pause))
	case r.news || start.Time.Before(w.raised):
		r.pause = 0
		w.pushLocked(r, time.Now())
	default:
		r.pause = 0
		w.pushLocked(r, w.cfg.Leases.Due(l, start.Time.Add(w.cfg.Every)))
	}
}

// check asks for leases without renewal. Leases without an answer are checked again.
func (w *Watchdog[L]) check(leases []L) {
	ctx, cancel := context.WithTimeout(w.cfg.Life, Limit(w.cfg.Term))
	defer cancel()
	answers, _ := w.cfg.Ask(ctx, leases, true)
	var again []L
	for _, n := range answers {
		switch {
		case n.Err != nil && !remote.Final(n.Err):
			again = append(again, n.Lease)
		case n.Err == nil && n.Outcome <= 0:
			w.cfg.Leases.Denied(n.Lease, n.Outcome < 0)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range again {
		if r := w.cfg.Leases.Record(l); !r.ended {
			w.recheckLocked(r)
		}
	}
}
