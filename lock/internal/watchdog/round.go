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
	server  *server[L]
	due     []L // to be renewed
	toCheck []L // to be checked

	begun   bool  // a renewal was sent
	failure error // the first one; nil for none
	Round
}

// run sends the requests of a round, and returns when all have ended.
func (w *Watchdog[L]) run(r *round[L]) {
	start := time.Now()
	var wg sync.WaitGroup
	if len(r.toCheck) > 0 {
		wg.Go(func() { w.check(r) })
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
	ctx, cancel := w.limit(r.server)
	defer cancel()
	answers := w.cfg.Ask(ctx, leases, false)
	late, over := start.Elapsed(w.cfg.Now()) > AnsweredLate, ctx.Err() != nil
	for _, a := range answers {
		w.renewed(r, a, start, late)
	}
	if r.failure != nil && w.cfg.Life.Err() == nil {
		w.cfg.Leases.Warn(leases[0], r.failure, "renewals fail, and are tried again", "leases", r.Failed)
	}
	w.mu.Lock()
	r.server.adaptLocked(r.failure == nil, over)
	w.mu.Unlock()
}

// limit returns the context of a request to a server. A redirection or refusal is the answer for its lease, and holds up no other; in a round
// apart redirections are followed.
func (w *Watchdog[L]) limit(s *server[L]) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(w.cfg.Life, Limit(w.cfg.Term))
	if !s.lane.apart {
		ctx = remote.NoRepeat(ctx)
	}
	return ctx, cancel
}

// errUnconfirmed marks a successful renewal awaiting confirmation by a second renewal.
var errUnconfirmed = errors.New("lock: renewed late or after a failure, and not confirmed")

// renewed records the outcome of a renewal. After a late answer or a failed renewal, a success may come from a server that
// hung and was replaced in the meantime. Unless replicas acknowledged the renewal, the success counts only if a second
// renewal, sent after the answer, succeeds too.
func (w *Watchdog[L]) renewed(r *round[L], a Answer[L], start clock.Instant, late bool) {
	l, failure := a.Lease, a.Err
	record := w.cfg.Leases.Record(l)
	w.mu.Lock()
	follows := record.followLocked(failure)
	w.mu.Unlock()
	done := failure == nil && a.Outcome == 1
	if done && !w.cfg.Acked && record.trust != confirming && (late || record.trust == doubted) {
		failure = errUnconfirmed
	}
	switch {
	case follows:
	case failure == errUnconfirmed:
		record.trust = confirming
	case failure != nil:
		record.trust = doubted
		r.failure = cmp.Or(r.failure, failure)
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
		w.again(record, start, failure, follows)
	}
}

// again schedules the next renewal of a lease: a period after a success, sooner after a failure, at once if unconfirmed or redirected.
func (w *Watchdog[L]) again(r *Record[L], start clock.Instant, failure error, follows bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.ended {
		return
	}
	if failure == nil {
		r.detour, r.pause = direct, 0
	}
	switch {
	case failure == errUnconfirmed, follows:
		w.pushLocked(r, time.Now())
	case failure != nil: // the lease is asked for anew in any case
		r.pause, r.maybeForced = min(max(2*r.pause, retryMin), retryMax), false
		w.pushLocked(r, time.Now().Add(r.pause))
	case r.maybeForced || start.Time.Before(w.renewAllAt):
		w.pushLocked(r, time.Now())
	default:
		w.pushLocked(r, w.cfg.Leases.Due(r.lease, start.Time.Add(w.cfg.Every)))
	}
}

// check asks for leases without renewal. Leases without an answer are checked again.
func (w *Watchdog[L]) check(r *round[L]) {
	ctx, cancel := w.limit(r.server)
	defer cancel()
	answers := w.cfg.Ask(ctx, r.toCheck, true)
	for _, a := range answers {
		if a.Err == nil && a.Outcome <= 0 {
			w.cfg.Leases.Denied(a.Lease, a.Outcome < 0)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range answers {
		switch record := w.cfg.Leases.Record(a.Lease); {
		case record.ended:
		case a.Err == nil:
			record.detour = direct
		case record.followLocked(a.Err):
			w.checkLocked(record, time.Now())
		case !remote.Hopeless(a.Err):
			w.recheckLocked(record)
		}
	}
}
