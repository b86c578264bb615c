package lock

import (
	"context"
	"strings"
	"time"
)

// A waiter at the front of its line asks the server once who holds the lock: shortly before its deadline, for the error, and
// after WarnAfter, for the log. The answer comes before the deadline or not at all.

const (
	// questionLead is the time between the question and the deadline, at most a third of the wait.
	questionLead = 200 * time.Millisecond
	// shortestLead is the least time for an answer. For less there is no question.
	shortestLead = 20 * time.Millisecond
)

// planQuestions sets the times for a waiter that is now at the front.
func (w *waiter) planQuestions(now time.Time) {
	if w.target.kind.unowned {
		return // nobody knows the holders
	}
	w.questions.last = lastQuestion(w.deadline, now)
	if after := w.client.cfg.WarnAfter; after > 0 && !w.standby && !w.client.log.Silent() {
		if at := w.since.Add(after); at.After(now) {
			w.questions.warn = at
		}
	}
}

// lastQuestion returns the time of the question before a deadline; zero if there is no deadline, or too little time.
func lastQuestion(deadline, now time.Time) time.Time {
	lead := min(questionLead, deadline.Sub(now)/3)
	if deadline.IsZero() || lead < shortestLead {
		return time.Time{}
	}
	return deadline.Add(-lead)
}

// next returns the time until the next question, or wait if that is shorter.
func (q *questions) next(wait time.Duration) time.Duration {
	for _, at := range []time.Time{q.last, q.warn} {
		if !at.IsZero() {
			wait = min(wait, time.Until(at))
		}
	}
	return max(wait, 0)
}

// askWhatIsDue asks who holds the lock if it is time to.
func (w *waiter) askWhatIsDue(ctx context.Context) {
	now := time.Now()
	due := func(at *time.Time) bool {
		if at.IsZero() || at.After(now) {
			return false
		}
		*at = time.Time{}
		return true
	}
	last, warn := due(&w.questions.last), due(&w.questions.warn)
	if !last && !warn {
		return
	}
	c := w.client
	held := c.ownHolder(w.target)
	if held == nil {
		held = w.noteHolder(c.askHolder(ctx, w.target))
	}
	if warn {
		args := []any{"waited", roughly(now.Sub(w.since))}
		if held != nil {
			args = append(args, "holder", held.owner, "process", held.process)
		}
		c.log.WarnOf(w.target.name, w.target.kind.Name, w.owner, "waiting for long", args...)
	}
}

// noteHolder keeps an answer for the errors of this waiter and of those behind it. It returns the last answer of the line; nil if
// there is none.
//
// A holder of this process may read the request of a waiter with an entry at any time: the answer is in the entry.
func (w *waiter) noteHolder(held *seenHolder) *seenHolder {
	kept := &w.holder
	if w.entry != nil {
		w.client.table.mu.Lock()
		defer w.client.table.mu.Unlock()
		kept = &w.entry.seen
	}
	if held != nil {
		*kept = held
	}
	if *kept == nil || !(*kept).at.After(w.since) {
		return nil
	}
	return *kept
}

// ownHolder returns an owner of a lock in this process; nil if there is none, or if others may be in the way too.
func (c *Client) ownHolder(t *target) *seenHolder {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if held := c.ownLocked(t); held != nil {
		return &seenHolder{owner: held.Owner(), process: c.cfg.Name, at: time.Now()}
	}
	return nil
}

// ownLocked returns a lease of this process that has the lock, nil if there is none. The caller has table.mu.
func (c *Client) ownLocked(t *target) *Lease {
	if e := c.table.entries[t.hold()]; e != nil && !t.kind.parted {
		return e.leases
	}
	return nil
}

// askHolder returns an owner of a lock; nil if there is none, or no answer in time.
func (c *Client) askHolder(ctx context.Context, t *target) *seenHolder {
	ctx, cancel := context.WithTimeout(ctx, questionLead/2)
	defer cancel()
	v, err := t.kind.Info.Run(ctx, c.server, t.seeing(nil), t.valued()...)
	if err != nil {
		return nil
	}
	info, err := t.kind.parseWhole(v)
	if err != nil || len(info.Holders) == 0 {
		return nil
	}
	h := &seenHolder{owner: info.Holders[0].Owner, at: time.Now(), left: info.Holders[0].Remaining}
	_, rests := predecessor(h.owner)
	if id, _, ok := strings.Cut(h.owner, ":"); ok && !rests {
		h.process = c.processNames.of(ctx, c.server, t.name, id)
	}
	return h
}
