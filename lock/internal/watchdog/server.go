package watchdog

import (
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

// lane names a server, or a slot whose leases go apart: through their server to a second server, which may hang.
type lane struct {
	route string
	apart bool
	slot  int
}

// server has the leases that are due on a server, or apart in a slot. The Watchdog's mu guards it.
type server[L comparable] struct {
	lane     lane
	busy     bool        // a round is under way
	batches  int         // number of batches to send in a write
	renewals schedule[L] // leases with renewal
	// toCheck has leases without renewal, to be checked at checkAt, because an alarm or a message since their request may be about them.
	toCheck map[L]struct{}
	checkAt time.Time
}

// serverLocked returns the server of a lease's lock.
func (w *Watchdog[L]) serverLocked(r *Record[L]) *server[L] {
	name, to := w.cfg.Leases.Name(r.lease), lane{}
	if r.detour == apart {
		to = lane{apart: true, slot: w.cfg.Server.SlotOf(name)}
	} else {
		to.route = w.cfg.Server.Route(name)
	}
	s := w.servers[to]
	if s == nil {
		s = &server[L]{lane: to, batches: batchesAtOnce, toCheck: make(map[L]struct{})}
		w.servers[to] = s
	}
	return s
}

// checkLocked has the server asked for a lease without renewal at the time at.
func (w *Watchdog[L]) checkLocked(r *Record[L], at time.Time) {
	if r.server != nil {
		delete(r.server.toCheck, r.lease)
	}
	r.server = w.serverLocked(r)
	r.server.toCheck[r.lease] = struct{}{}
	r.server.checkAt = at
	w.wakeLocked(at)
}

// recheckLocked has the server asked once more for a lease, after a pause unless others are to be asked for sooner.
func (w *Watchdog[L]) recheckLocked(r *Record[L]) {
	at := time.Now().Add(retryMax)
	if s := w.serverLocked(r); len(s.toCheck) > 0 {
		at = clock.Earlier(at, s.checkAt)
	}
	w.checkLocked(r, at)
}

// takeLocked removes the due leases and returns a round of them, together with renewals due soon; nil if there are none. Leases whose locks
// are on another server by now go there.
func (w *Watchdog[L]) takeLocked(s *server[L], at time.Time) *round[L] {
	r := &round[L]{server: s}
	if len(s.renewals) > 0 && !s.renewals[0].due.After(at) {
		soon := at.Add(w.cfg.Every / gather)
		for len(s.renewals) > 0 && !s.renewals[0].due.After(soon) && len(r.due) < s.batches*w.cfg.Batch {
			first := s.renewals.take()
			if w.serverLocked(first) != s {
				w.pushLocked(first, first.due)
				continue
			}
			first.maybeForced = false
			r.due = append(r.due, first.lease)
			r.Lateness = max(r.Lateness, at.Sub(first.due))
		}
	}
	if len(s.toCheck) > 0 && !s.checkAt.After(at) {
		for l := range s.toCheck {
			if record := w.cfg.Leases.Record(l); w.serverLocked(record) != s {
				w.checkLocked(record, at)
				continue
			}
			r.toCheck = append(r.toCheck, l)
		}
		clear(s.toCheck)
	}
	if len(r.due)+len(r.toCheck) == 0 {
		return nil
	}
	return r
}

// adaptLocked adapts the size of the server's next round to the result of the last round.
func (s *server[L]) adaptLocked(done, late bool) {
	switch {
	case done:
		s.batches = min(s.batches+1, batchesAtOnce)
	case late: // the round may have been too large
		s.batches = max(s.batches/2, 1)
	}
}

// nextLocked returns the time at which a lease is due on the server, or end if earlier. Renewals are looked at tick after now.
func (s *server[L]) nextLocked(end, tick time.Time) time.Time {
	if len(s.toCheck) > 0 {
		end = clock.Earlier(end, s.checkAt)
	}
	if len(s.renewals) > 0 {
		end = clock.Earlier(end, clock.Earlier(s.renewals[0].due, tick))
	}
	return end
}
