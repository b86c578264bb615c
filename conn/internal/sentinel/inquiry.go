package sentinel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

// furtherFor is the time for all other sentinels, after the first answer about the replicas.
const furtherFor = 250 * time.Millisecond

// inquiry is a round of questions about the replicas, in a goroutine of its own: callers that leave do not end it.
type inquiry struct {
	done chan struct{}

	// Constant once done is closed.
	begin time.Time
	s     Succession
	err   error
}

// inquiries is the state of all inquiries that ask every sentinel, or of all others. The Resolver's mu guards the fields
// but ask.
type inquiries struct {
	ask      func(ctx context.Context) []opinion // constant
	last     Succession                          // the last answer; Asked is zero before the first
	underWay *inquiry                            // nil for none
	pause
}

// known returns the last answer, if it is about the known master and was asked for at since or later.
func (r *Resolver) known(since time.Time, every bool) (Succession, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.ofEvery.last
	if !every && r.ofOne.last.Asked.After(last.Asked) {
		last = r.ofOne.last
	}
	last.Changes = r.master.seq
	return last, !last.Asked.IsZero() && last.Addr == r.master.addr && !last.Asked.Before(since)
}

// Succession returns a sentinel's answer to a question sent at since or later; for a zero since the last answer is
// enough. opinion.read and combine decide which answers count.
//
// With every, all sentinels are asked at once, and the replicas in any answer within furtherFor of the first count.
func (r *Resolver) Succession(ctx context.Context, since time.Time, every bool) (Succession, error) {
	for {
		if s, ok := r.known(since, every); ok {
			return s, nil
		}
		i := &r.ofOne
		if every {
			i = &r.ofEvery
		}
		q := r.inquiry(i)
		select {
		case <-q.done:
		case <-ctx.Done():
			return Succession{}, r.failure(netfail.Ended(ctx))
		}
		if !q.begin.Before(since) {
			return q.s, q.err
		}
	}
}

// inquiry returns the inquiry under way, or begins one.
func (r *Resolver) inquiry(i *inquiries) *inquiry {
	r.mu.Lock()
	q := i.underWay
	if q != nil {
		r.mu.Unlock()
		return q
	}
	q = &inquiry{done: make(chan struct{})}
	i.underWay = q
	r.mu.Unlock()
	if err := r.cfg.Go(func(ctx context.Context) { r.inquireReplicas(ctx, q, i) }); err != nil {
		q.begin = time.Now()
		r.conclude(q, i, Succession{}, err)
	}
	return q
}

// inquireReplicas carries out an inquiry, after a pause that grows with the failures in a row.
func (r *Resolver) inquireReplicas(ctx context.Context, q *inquiry, i *inquiries) {
	r.mu.Lock()
	until, term := i.until, r.master.term
	r.mu.Unlock()
	_ = netfail.SleepUnless(ctx, time.Until(until), term.Done(), ErrSwitched) // a new master is asked about at once
	q.begin = time.Now()
	s, err := r.combine(i.ask(ctx))
	if ctx.Err() != nil {
		err = netfail.Ended(ctx)
	} else if err != nil {
		err = fmt.Errorf("asking the sentinels for replicas: %w", err)
	}
	r.conclude(q, i, s, err)
}

// conclude records the outcome of an inquiry, and sets Bare.
func (r *Resolver) conclude(q *inquiry, i *inquiries, s Succession, err error) {
	defer close(q.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	i.underWay = nil
	if err != nil {
		q.err = r.failure(err)
		i.extend()
		return
	}
	if r.ofOne.last.Asked.IsZero() && r.ofEvery.last.Asked.IsZero() {
		r.firstMaster = s.Master
	}
	r.hadReplica = r.hadReplica || s.Replicas > 0
	s.Bare = !r.hadReplica && s.Master == r.firstMaster
	q.s, i.last, i.pause = s, s, pause{}
}

// replicasInTurn asks one sentinel after the other until an opinion counts.
func (r *Resolver) replicasInTurn(ctx context.Context) (all []opinion) {
	for _, at := range r.list() {
		all = append(all, r.askReplicas(ctx, at))
		if _, err := r.combine(all); err == nil || ctx.Err() != nil {
			break
		}
	}
	return all
}

// replicasFromAll asks all sentinels at once, and gives up furtherFor after the first answer.
func (r *Resolver) replicasFromAll(ctx context.Context) (all []opinion) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opinions := make(chan opinion)
	var asking sync.WaitGroup
	defer asking.Wait()
	list := r.list()
	for _, at := range list {
		asking.Go(func() { opinions <- r.askReplicas(ctx, at) })
	}
	var rest *time.Timer // ends the questions that are left
	for range list {
		o := <-opinions
		if o.err == nil && rest == nil {
			rest = time.AfterFunc(furtherFor, cancel)
			defer rest.Stop()
		}
		all = append(all, o)
	}
	return all
}

// refreshSuccession asks again, if a caller has asked before.
func (r *Resolver) refreshSuccession(ctx context.Context) {
	r.mu.Lock()
	wanted := !r.ofOne.last.Asked.IsZero() || !r.ofEvery.last.Asked.IsZero()
	r.mu.Unlock()
	if wanted {
		_, _ = r.Succession(ctx, time.Now(), false) // on failure the next caller asks again
	}
}
