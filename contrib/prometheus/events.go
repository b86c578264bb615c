package lockprom

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func (m *Metrics) command(_ context.Context, e conn.CommandEnd) {
	m.note(event{source: called, batch: e.Batch, kind: e.Name, name: e.Script, server: e.Server, failure: class(e.Err), took: e.Elapsed})
}

// note adds e to the queue.
func (m *Metrics) note(e event) { m.queue.add(e, m.measure) }

// measure changes the metrics of e.
func (m *Metrics) measure(e *event) {
	if e.source == called {
		m.calls.of(commandKey{e.server, e.kind, e.name, e.failure, e.batch}, func() prometheus.Observer {
			operation := conn.CommandStart{Name: e.kind, Batch: e.batch}.Operation()
			return m.commands.WithLabelValues(e.server, operation, e.name, e.failure)
		}).Observe(e.took.Seconds())
		return
	}
	series := m.of(e.kind, e.name)
	switch e.source {
	case begun:
		series.waits(e.standby).Inc()
	case acquired:
		m.measureAcquire(series, e)
	case released:
		series.held.Dec()
		held := series.released
		if e.outcome != lock.OutcomeReleased {
			held = m.holds.WithLabelValues(e.kind, m.group(e.name), string(e.outcome))
		}
		held.Observe(e.took.Seconds())
	}
}

func (m *Metrics) measureAcquire(series *lockSeries, e *event) {
	if !e.try {
		series.waits(e.standby).Dec()
	}
	took := series.acquired
	if e.outcome != lock.OutcomeAcquired {
		took = m.acquires.WithLabelValues(e.kind, m.group(e.name), string(e.outcome))
	}
	took.Observe(e.took.Seconds())
	if e.handedOver {
		series.handovers.Inc()
	}
	if e.unacknowledged {
		series.unacknowledged.Inc()
	}
	if e.held {
		series.held.Inc()
	}
}

func (m *Metrics) wait(_ context.Context, w conn.WaitInfo) {
	m.waits.WithLabelValues(w.Addr, class(w.Err)).Observe(w.Elapsed.Seconds())
}

func (m *Metrics) retry(_ context.Context, r conn.RetryInfo) { m.retries.WithLabelValues(r.Addr).Inc() }

func (m *Metrics) dial(d conn.DialInfo) {
	m.dials.WithLabelValues(d.Addr, class(d.Err)).Observe(d.Elapsed.Seconds())
}

// class returns the class of an error, of which there are few: the prefix of an error reply, or a word; "" without an error. The
// first word of a reply is a prefix if it has capitals only: programs' scripts write names and numbers there.
func class(err error) string {
	if err == nil {
		return ""
	}
	reply, answered := errors.AsType[resp.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, conn.ErrClosed):
		return "closed"
	case errors.Is(err, conn.ErrUncertain):
		return "unanswered"
	case errors.Is(err, conn.ErrNotSent):
		return "not_sent"
	case answered && reply.Prefix() != "" && strings.Trim(reply.Prefix(), capitals) == "":
		return reply.Prefix()
	}
	return "other"
}

const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (m *Metrics) acquireStart(ctx context.Context, s lock.AcquireStart) context.Context {
	if !s.Try {
		m.note(event{source: begun, standby: s.Standby, kind: s.Kind, name: s.Name})
	}
	return ctx
}

func (m *Metrics) acquireEnd(_ context.Context, e lock.AcquireEnd) {
	m.note(event{
		source: acquired, try: e.Try, standby: e.Standby, held: e.Held != nil, handedOver: e.HandedOver, unacknowledged: e.Unacknowledged,
		kind: e.Kind, name: e.Name, outcome: e.Outcome, took: e.Elapsed,
	})
}

func (m *Metrics) releaseEnd(_ context.Context, e lock.ReleaseEnd) {
	if e.Held != nil && !e.Lost {
		m.note(event{source: released, kind: e.Kind, name: e.Name, outcome: e.Outcome, took: e.Age})
	}
}

func (m *Metrics) lost(l lock.LossInfo) {
	group := m.group(l.Name)
	m.losses.WithLabelValues(l.Kind, group, l.Reason.Label()).Inc()
	m.of(l.Kind, l.Name).held.Dec()
	m.holds.WithLabelValues(l.Kind, group, "lost").Observe(l.Age.Seconds())
}

func (m *Metrics) renewal(r lock.RenewalInfo) {
	m.lateness.Observe(r.Lateness.Seconds())
	m.lease.Set(r.Lease.Seconds())
	m.renewals.WithLabelValues("renewed").Add(float64(r.Renewed))
	m.renewals.WithLabelValues("failed").Add(float64(r.Failed))
	m.renewals.WithLabelValues("gone").Add(float64(r.Gone))
}

func (m *Metrics) background(b lock.BackgroundInfo) {
	if b.Change != lock.BackgroundRelease {
		return
	}
	pending := m.of(b.Kind, b.Name).pending
	if b.Done {
		pending.Dec()
	} else {
		pending.Inc()
	}
}
