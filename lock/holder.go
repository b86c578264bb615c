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
	k := w.target.kind
	if k.unowned() && !k.permits { // who waits for a latch waits for work, not for a holder
		return
	}
	if !k.unowned() { // else nobody knows the holders
		w.questions.last = lastQuestion(w.deadline, now)
	}
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

// askWhatIsDue asks for the holder, if it is time to, for the error or the log. It reports whether there is none: the key was deleted by hand
// or evicted, or the message of the release is on its way.
func (w *waiter) askWhatIsDue(ctx context.Context) (free bool) {
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
		return false
	}
	c, k := w.client, w.target.kind
	held := &seenHolder{}
	if own, _ := w.holders(); own != nil {
		held = &seenHolder{owner: own.Owner(), process: c.cfg.Name}
	} else if !k.unowned() {
		held = w.noteHolder(c.askHolder(ctx, w.target))
	}
	if warn {
		c.warnWaiting(w.target.Name, k.Name, w.shownOwner(), now.Sub(w.since), held)
	}
	return held.owner == "" && held.err == nil && !k.unowned()
}

// warnWaiting reports a long wait under way.
func (c *Client) warnWaiting(name, kind, owner string, waited time.Duration, held *seenHolder) {
	args := []any{"waited", roughly(waited)}
	if held.owner != "" {
		args = append(args, "holder", held.owner)
	}
	if held.process != "" {
		args = append(args, "process", held.process)
	}
	if held.err != nil {
		args = append(args, "error", held.err)
	}
	c.log.WarnOf(name, kind, owner, "waiting for long", args...)
}

// noteHolder keeps an answer for the errors of this waiter and of those behind it, and returns it. A question without an answer
// leaves an earlier answer in place.
//
// A holder of this process may read the request of a waiter in line at any time: the answer is in the entry.
func (w *waiter) noteHolder(held *seenHolder) *seenHolder {
	kept := &w.why.holder
	if !w.target.kind.queued() {
		w.client.table.mu.Lock()
		defer w.client.table.mu.Unlock()
		kept = &w.entry.seen
	}
	if before := *kept; held.err == nil || before == nil || before.owner == "" || !before.at.After(w.since) {
		*kept = held
	}
	return *kept
}

// askHolder asks the server for an owner of a lock.
func (c *Client) askHolder(ctx context.Context, t *target) *seenHolder {
	ctx, cancel := context.WithTimeout(ctx, questionLead/2)
	defer cancel()
	v, err := t.kind.Info.Run(ctx, c.server, t.appendInfoKeys(nil), t.withValues()...)
	var info Info
	if err == nil {
		info, err = t.kind.parseBothHalves(v)
	}
	if err != nil || len(info.Holders) == 0 {
		return &seenHolder{err: err, at: time.Now()}
	}
	h := &seenHolder{owner: info.Holders[0].Owner, at: time.Now(), left: info.Holders[0].Remaining}
	_, rests := predecessor(h.owner)
	if id, _, ok := strings.Cut(h.owner, ":"); ok && !rests {
		h.process = c.processNames.Of(ctx, c.server, t.Name, id)
	}
	return h
}
