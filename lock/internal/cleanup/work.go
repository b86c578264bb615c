package cleanup

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Work is a request to repeat until the server confirms the request, or until a repeat is pointless. Only the Job calls the
// methods, one at a time.
type Work interface {
	// Name returns the name of the lock, which determines the server.
	Name() string
	Rank() Rank
	// Size returns the number of locks or permits.
	Size() int
	// Turn returns the turn of an Owner's lock, to be taken from the channel and put back; nil without an Owner. Needed, Call and
	// Answered have the turn.
	Turn() chan struct{}
	// Needed reports whether there is work left, and otherwise the outcome.
	Needed() (left bool, outcome error)
	// Call returns the next request.
	Call() *remote.Call
	// Answered takes the server's reply. again: the request was sent before. If the work is done, result is the outcome, else the failure of
	// the request, or nil if further requests follow.
	Answered(v resp.Value, again bool) (done bool, result error)
	// Unsure is called after a request that failed with err and may still take effect, or of which a part has run.
	Unsure(err error)
	// Finish is called once, at the end, before the turn is given back.
	Finish(outcome error)
	// Count adds the work, now abandoned, to the numbers.
	Count(to *Abandoned)
}

// Simple has the methods of a Work that needs nothing special: of size 1, without turns, worth doing until it is done, and not counted
// when given up. A Work embeds it.
type Simple struct{}

func (Simple) Size() int             { return 1 }
func (Simple) Turn() chan struct{}   { return nil }
func (Simple) Needed() (bool, error) { return true, nil }
func (Simple) Unsure(error)          {}
func (Simple) Finish(error)          {}
func (Simple) Count(*Abandoned)      {}

// Rank orders work. Releases come first, since other owners may wait for the lock.
type Rank int

// The ranks, in order.
const (
	Release Rank = iota
	Change
	Undo
)

// Abandoned counts abandoned work.
type Abandoned struct {
	Releases, Acquires, Changes, Permits int
}

// Job is Work under way.
type Job struct {
	work    Work
	until   time.Time // then the lease has ended on the server, and a failed job gives up
	hasTurn bool      // the job holds the owner's turn
	kept    bool      // of kept work; constant
	done    chan struct{}
	outcome error               // valid once done is closed
	ended   func(outcome error) // constant after Add

	// Owned by the loop, and by the batch that the job is in.
	again       bool // a request was sent before
	next        time.Time
	pause       time.Duration
	mayRunUntil time.Time // until then a request without an answer may still take effect
	over        bool
}

// NewJob returns a Job for w, without use after until. turn: the job takes over the owner's turn.
func NewJob(w Work, until time.Time, turn bool) *Job {
	return &Job{work: w, until: until, hasTurn: turn, done: make(chan struct{}), ended: func(error) {}}
}

// NoteUnanswered notes, before Add, that a request sent by the caller may still take effect.
func (j *Job) NoteUnanswered() { j.mayRunUntil = time.Now().Add(remote.Arrival) }

// Done returns a channel that is closed at the end of the job.
func (j *Job) Done() <-chan struct{} { return j.done }

// Outcome returns the result of a job that is done.
func (j *Job) Outcome() error { return j.outcome }

// ready takes the owner's turn, and reports whether the job has the turn, or needs none.
func (j *Job) ready() bool {
	turn := j.work.Turn()
	if turn == nil || j.hasTurn {
		return true
	}
	select {
	case _, j.hasTurn = <-turn: // false from a closed one: the next call of Turn returns another
	default:
	}
	return j.hasTurn
}

// needed reports whether there is work left, and ends the job if not.
func (j *Job) needed() bool {
	left, outcome := j.work.Needed()
	if !left {
		j.finish(outcome)
	}
	return left
}

// answered records the server's reply to the job.
func (u *Cleanup) answered(j *Job, v resp.Value, at time.Time) {
	if u.cfg.Clocks.Late(j.work.Name(), v) {
		u.failed(j, remote.ErrLate, at)
		return
	}
	switch done, result := j.work.Answered(v, j.again); {
	case done:
		j.finish(result)
	case result != nil:
		u.failed(j, result, at)
	}
}

// failed records a request without a reply, or with an error reply.
func (u *Cleanup) failed(j *Job, err error, at time.Time) {
	part := netfail.DeniedInside(err)
	if remote.Uncertain(err) {
		j.work.Unsure(err)
		if !part {
			j.mayRunUntil = at.Add(remote.Arrival)
		}
	}
	arrives := !at.After(j.mayRunUntil) // a request without an answer may still take effect
	mayRun := j.hasTurn && arrives      // and take the next hold of the Owner
	ending := errors.Is(err, conn.ErrClosed) || u.asking.Err() != nil
	switch {
	case part && j.work.Rank() == Change && (!arrives || ending): // has changed nothing; until then an earlier request may
		if arrives { // Close gives it up
			u.count(j)
		}
		j.finish(u.cfg.Refused(err))
	case remote.Hopeless(err) && (!mayRun || ending):
		j.finish(u.cfg.Refused(err))
	case at.After(j.until) && !mayRun:
		j.finish(fmt.Errorf("%w: %w", u.cfg.Uncertain, err))
	default:
		j.pause = min(max(2*j.pause, repeatMin), repeatMax)
		j.next, j.again = at.Add(j.pause), true
	}
}

// finish ends the job, gives the owner's turn back, and wakes the caller that waits for the outcome.
func (j *Job) finish(outcome error) {
	if j.over {
		return
	}
	j.over = true
	j.work.Finish(outcome)
	if j.hasTurn {
		j.work.Turn() <- struct{}{}
	}
	j.outcome = outcome
	close(j.done)
	j.ended(outcome)
}
