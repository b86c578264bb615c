package lockprom

import (
	"context"
	"errors"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func (m *Metrics) command(_ context.Context, e conn.CommandEnd) {
	m.commands.WithLabelValues(e.Server, e.Operation(), e.Script, class(e.Err)).Observe(e.Elapsed.Seconds())
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
		m.waiting.WithLabelValues(s.Kind, m.group(s.Name)).Inc()
	}
	return ctx
}

func (m *Metrics) acquireEnd(_ context.Context, e lock.AcquireEnd) {
	group := m.group(e.Name)
	if !e.Try {
		m.waiting.WithLabelValues(e.Kind, group).Dec()
	}
	m.acquires.WithLabelValues(e.Kind, group, string(e.Outcome)).Observe(e.Elapsed.Seconds())
	if e.HandedOver {
		m.handovers.WithLabelValues(e.Kind, group).Inc()
	}
	if e.Unacknowledged {
		m.unacknowledged.WithLabelValues(e.Kind, group).Inc()
	}
	if e.Held != nil {
		m.held.WithLabelValues(e.Kind, group).Inc()
	}
}

func (m *Metrics) releaseEnd(_ context.Context, e lock.ReleaseEnd) {
	if e.Held == nil || e.Lost {
		return
	}
	group := m.group(e.Name)
	m.held.WithLabelValues(e.Kind, group).Dec()
	m.holds.WithLabelValues(e.Kind, group, string(e.Outcome)).Observe(e.Age.Seconds())
}

func (m *Metrics) lost(l lock.LossInfo) {
	group := m.group(l.Name)
	m.losses.WithLabelValues(l.Kind, group, l.Reason.Label()).Inc()
	m.held.WithLabelValues(l.Kind, group).Dec()
	m.holds.WithLabelValues(l.Kind, group, "lost").Observe(l.Age.Seconds())
}

func (m *Metrics) renewal(r lock.RenewalInfo) {
	m.lateness.Observe(r.Lateness.Seconds())
	m.lease.Set(r.Lease.Seconds())
	m.renewals.WithLabelValues("renewed").Add(float64(r.Renewed))
	m.renewals.WithLabelValues("failed").Add(float64(r.Failed))
	m.renewals.WithLabelValues("gone").Add(float64(max(r.Gone, 0)))
}

func (m *Metrics) background(b lock.BackgroundInfo) {
	if b.Change != lock.BackgroundRelease {
		return
	}
	pending := m.pending.WithLabelValues(b.Kind, m.group(b.Name))
	if b.Done {
		pending.Dec()
	} else {
		pending.Inc()
	}
}
