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

// inquiry is a round of questions about the replicas. Its end does not depend on the callers that wait for it.
type inquiry struct {
	done chan struct{}

	// Constant once done is closed.
	begin time.Time
	s     Succession
	err   error
}

// inquiries has the inquiries of one sort: of the first sentinel with an answer, or of every sentinel. The Resolver's mu guards inquiries.
type inquiries struct {
	last      Succession // the last answer; without Asked before the first
	underWay  *inquiry   // nil for none
	failed    int        // inquiries in a row
	notBefore time.Time  // earliest time of the next inquiry
}

// knownLocked returns the last answer, if it is about the known master and was asked for at since or later.
func (f *Resolver) knownLocked(since time.Time, every bool) (Succession, bool) {
	last := f.ofEvery.last
	if !every && f.ofOne.last.Asked.After(last.Asked) {
		last = f.ofOne.last
	}
	last.Changes = f.master.seq
	return last, !last.Asked.IsZero() && last.Addr == f.master.addr && !last.Asked.Before(since)
}

// Succession returns a sentinel's answer to a question sent at since or later; for a zero since the last answer is
// enough. Answers of a sentinel without a majority, back from a partition for less than two seconds, started less than four seconds ago, cut off
// from the master, or with another master than the known one do not count.
//
// With every, all sentinels are asked at once, and the replicas in any answer within furtherFor of the first count.
func (f *Resolver) Succession(ctx context.Context, since time.Time, every bool) (Succession, error) {
	for {
		f.mu.Lock()
		s, known := f.knownLocked(since, every)
		f.mu.Unlock()
		if known {
			return s, nil
		}
		q := f.inquiry(every)
		select {
		case <-q.done:
		case <-ctx.Done():
			return Succession{}, f.failure(netfail.Ended(ctx))
		}
		if !q.begin.Before(since) {
			return q.s, q.err
		}
	}
}

// inquiry returns the inquiry under way, or begins one.
func (f *Resolver) inquiry(every bool) *inquiry {
	f.mu.Lock()
	i := f.inquiriesOf(every)
	q := i.underWay
	if q != nil {
		f.mu.Unlock()
		return q
	}
	q = &inquiry{done: make(chan struct{})}
	i.underWay = q
	f.mu.Unlock()
	if err := f.cfg.Go(func(ctx context.Context) { f.inquireReplicas(ctx, q, every) }); err != nil {
		q.begin = time.Now()
		f.conclude(q, i, Succession{}, err)
	}
	return q
}

func (f *Resolver) inquiriesOf(every bool) *inquiries {
	if every {
		return &f.ofEvery
	}
	return &f.ofOne
}

// inquireReplicas carries out an inquiry, after a pause that grows with the number of failed ones.
func (f *Resolver) inquireReplicas(ctx context.Context, q *inquiry, every bool) {
	i := f.inquiriesOf(every)
	f.mu.Lock()
	pause, changed := time.Until(i.notBefore), f.changed
	f.mu.Unlock()
	_ = netfail.Sleep(ctx, pause, changed, ErrSwitched) // a new master is asked about at once
	q.begin = time.Now()
	ask := f.askInTurn
	if every {
		ask = f.askAll
	}
	s, err := f.verdict(ask(ctx))
	if ctx.Err() != nil {
		err = netfail.Ended(ctx)
	} else if err != nil {
		err = fmt.Errorf("asking the sentinels for replicas: %w", err)
	}
	f.conclude(q, i, s, err)
}

// conclude records the outcome of an inquiry, and sets Bare.
func (f *Resolver) conclude(q *inquiry, i *inquiries, s Succession, err error) {
	defer close(q.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	i.underWay = nil
	if err != nil {
		q.err = f.failure(err)
		i.notBefore = time.Now().Add(netfail.Backoff(i.failed, minRoundPause, maxRoundPause))
		i.failed++
		return
	}
	if f.ofOne.last.Asked.IsZero() && f.ofEvery.last.Asked.IsZero() {
		f.firstMaster = s.Master
	}
	f.hadReplica = f.hadReplica || s.Replicas > 0
	s.Bare = !f.hadReplica && s.Master == f.firstMaster
	q.s, i.last, i.failed, i.notBefore = s, s, 0, time.Time{}
}

// askInTurn asks one sentinel after the other until an opinion counts.
func (f *Resolver) askInTurn(ctx context.Context) (all []opinion) {
	for _, at := range f.list() {
		all = append(all, f.askSuccession(ctx, at))
		if _, err := f.verdict(all); err == nil || ctx.Err() != nil {
			break
		}
	}
	return all
}

// askAll asks all sentinels at once.
func (f *Resolver) askAll(ctx context.Context) (all []opinion) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opinions := make(chan opinion)
	var asking sync.WaitGroup
	defer asking.Wait()
	list := f.list()
	for _, at := range list {
		asking.Go(func() { opinions <- f.askSuccession(ctx, at) })
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
func (f *Resolver) refreshSuccession(ctx context.Context) {
	f.mu.Lock()
	wanted := !f.ofOne.last.Asked.IsZero() || !f.ofEvery.last.Asked.IsZero()
	f.mu.Unlock()
	if wanted {
		_, _ = f.Succession(ctx, time.Now(), false) // on failure the next caller asks again
	}
}
