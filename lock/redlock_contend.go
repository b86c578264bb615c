package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// redlockPause limits the pause between ballots with slow servers, and redlockPauseMax the one behind more than redlockVain vain grants of
	// the anchor: somebody has the lock on the other servers.
	redlockPause, redlockPauseMax, redlockVain = 250 * time.Millisecond, time.Second, 2
	// redlockSlow is the number of leases, won too late in line, after which all servers are asked at once.
	redlockSlow = 3
)

// contest is what a Lock remembers of its attempts. It decides how and when to make the next one, and when to give up.
type contest struct {
	lock    *Redlock
	inLine  bool      // others wait for the lock, or hold it
	failing time.Time // since when no majority has answered; zero if the last one did
	vain    int       // grants of the anchor without a majority
	slow    int       // majorities that came too late for the lease
}

// contend asks the servers until a majority grants the lock: all at once, unless other processes wait, and then in line.
func (r *Redlock) contend(ctx context.Context, c redlockCall, ended func(bool), history *waited) (*Lease, error) {
	x := contest{lock: r, inLine: r.first.wanted.Has(r.key)}
	for {
		ask, began := r.ask, time.Now()
		if x.stands() {
			ask = r.askInLine
		}
		lease, err := ask(ctx, &c, ended)
		if c.answers {
			c.answers, x.failing = false, time.Time{}
		}
		if err != errLeftLine {
			history.note(err)
		}
		switch {
		case err == nil:
			return lease, nil
		case r.first.isClosed():
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, r.gaveUp(ctx, history)
		}
		pause, final := x.failed(err, began)
		if final {
			return nil, err
		}
		if r.first.sleep(ctx, pause) != nil {
			return nil, r.gaveUp(ctx, history)
		}
	}
}

// stands reports whether the next attempt is a wait in line. Where that was too slow, all servers at once are faster than one behind the other.
func (x *contest) stands() bool { return x.inLine && x.slow < redlockSlow }

// failed notes the error of an attempt that began at began, and returns the pause before the next one. A final error leaves no next one.
func (x *contest) failed(err error, began time.Time) (pause time.Duration, final bool) {
	stood, late := x.stands(), errors.Is(err, ErrLost)
	x.inLine = err != errLeftLine
	if late {
		x.slow++
	}
	switch {
	case isTaken(err):
		x.failing = time.Time{}
		if stood {
			x.vain++
		}
		x.slow = min(x.slow, redlockSlow-1) // wait in line for the other owner
		return x.lock.pauseInVain(x.vain - redlockVain), false
	case !x.inLine:
	case !late && !errors.Is(err, ErrNoQuorum):
		return 0, true
	case x.failing.IsZero():
		x.failing = time.Now() // a wait in line before is no failure
	case time.Since(x.failing) > x.lock.term:
		return 0, true
	}
	if late && !stood { // the useless grants are released meanwhile: at the anchor they would be a refusal
		return min(max(2*time.Since(began), time.Millisecond), redlockPause), false
	}
	return x.lock.pause(began), false
}

// pause returns the time until the next ballot after a failure that began at began.
func (r *Redlock) pause(began time.Time) time.Duration {
	base := max(r.cfg.Pause, min(2*time.Since(began), redlockPause))
	return base + rand.N(2*base)
}

// pauseInVain returns the pause after more vain grants of the anchor than redlockVain. It doubles with each, up to redlockPauseMax.
func (r *Redlock) pauseInVain(more int) time.Duration {
	if more <= 0 {
		return 0
	}
	return min(min(r.cfg.Pause, redlockPauseMax)<<min(more, 10), redlockPauseMax)
}
