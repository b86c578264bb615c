package lockprom

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func (m *Metrics) command(_ context.Context, e conn.CommandEnd) {
	key := commandKey{e.Server, e.Name, e.Script, class(e.Err), e.Batch}
	m.calls.of(key, func() prometheus.Observer {
		return m.commands.WithLabelValues(key.server, e.Operation(), key.script, key.failure)
	}).Observe(e.Elapsed.Seconds())
}

func (m *Metrics) wait(_ context.Context, w conn.WaitInfo) {
	m.waits.WithLabelValues(w.Addr, class(w.Err)).Observe(w.Elapsed.Seconds())
}

func (m *Metrics) retry(_ context.Context, r conn.RetryInfo) { m.retries.WithLabelValues(r.Addr).Inc() }

func (m *Metrics) dial(d conn.DialInfo) {
	m.dials.WithLabelValues(d.Addr, class(d.Err)).Observe(d.Elapsed.Seconds())
}

// class returns the class of an error, of which there are few: the prefix of an error reply, or a word; "" without an error.
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
	case answered:
		return reply.Prefix()
	}
	return "other"
}

func (m *Metrics) acquireStart(ctx context.Context, s lock.AcquireStart) context.Context {
	if !s.Try {
		m.of(s.Kind, s.Name).waits(s).Inc()
	}
	return ctx
}

func (m *Metrics) acquireEnd(_ context.Context, e lock.AcquireEnd) {
	series := m.of(e.Kind, e.Name)
	if !e.Try {
		series.waits(e.AcquireStart).Dec()
	}
	took := series.acquired
	if e.Outcome != lock.OutcomeAcquired {
		took = m.acquires.WithLabelValues(e.Kind, m.group(e.Name), string(e.Outcome))
	}
	took.Observe(e.Elapsed.Seconds())
	if e.HandedOver {
		series.handovers.Inc()
	}
	if e.Unacknowledged {
		series.unacknowledged.Inc()
	}
	if e.Held != nil {
		series.held.Inc()
	}
}

func (m *Metrics) releaseEnd(_ context.Context, e lock.ReleaseEnd) {
	if e.Held == nil || e.Lost {
		return
	}
	series := m.of(e.Kind, e.Name)
	series.held.Dec()
	held := series.released
	if e.Outcome != lock.OutcomeReleased {
		held = m.holds.WithLabelValues(e.Kind, m.group(e.Name), string(e.Outcome))
	}
	held.Observe(e.Age.Seconds())
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
