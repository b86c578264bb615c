package lockotel

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockwire/lockwire/lock"
)

// lockKey is a kind and a group.
type lockKey struct{ kind, group string }

// lockSeries are the time series of the locks of a kind and a group.
type lockSeries struct {
	held, waiting, standby, pending atomic.Int64

	attributes         []attribute.KeyValue // constant, as the following
	options            options
	acquired, released options // of the common outcomes
	observe            metric.ObserveOption
	more               kept[[2]string, options] // with one more attribute
}

// of returns the time series of a lock.
func (t *Telemetry) of(kind, name string) *lockSeries {
	key := lockKey{kind, t.cfg.Group(name)}
	t.lockMu.RLock()
	s := t.locks[key]
	t.lockMu.RUnlock()
	if s != nil {
		return s
	}
	t.lockMu.Lock()
	defer t.lockMu.Unlock()
	if s = t.locks[key]; s != nil {
		return s
	}
	s = &lockSeries{attributes: []attribute.KeyValue{attribute.String("lock.kind", kind)}}
	if key.group != "" {
		s.attributes = append(s.attributes, attribute.String("lock.group", key.group))
	}
	s.attributes = s.attributes[:len(s.attributes):len(s.attributes)]
	s.options = newOptions(s.attributes)
	s.acquired, s.released = s.with("lock.outcome", string(lock.OutcomeAcquired)), s.with("lock.outcome", string(lock.OutcomeReleased))
	s.observe = metric.WithAttributes(s.attributes...)
	t.locks[key] = s
	return s
}

// waits returns the number that counts a call of Lock.
func (s *lockSeries) waits(standby bool) *atomic.Int64 {
	if standby {
		return &s.standby
	}
	return &s.waiting
}

// by returns the options of s with an outcome.
func (s *lockSeries) by(outcome lock.Outcome) options {
	switch outcome {
	case lock.OutcomeAcquired:
		return s.acquired
	case lock.OutcomeReleased:
		return s.released
	}
	return s.with("lock.outcome", string(outcome))
}

// with returns the options of s with one more attribute.
func (s *lockSeries) with(key, value string) options {
	return s.more.of([2]string{key, value}, func() options {
		return newOptions(append(s.attributes, attribute.String(key, value)))
	})
}

// note measures e: at once under a sampled span, of which the measurement may become an exemplar, else from the queue.
func (t *Telemetry) note(ctx context.Context, span trace.Span, e event) {
	if span.SpanContext().IsSampled() {
		t.measure(ctx, &e)
		return
	}
	t.queue.add(e, t.measureLater)
}

func (t *Telemetry) measureLater(e *event) { t.measure(context.Background(), e) }

// measure changes the metrics of e.
func (t *Telemetry) measure(ctx context.Context, e *event) {
	if e.source == called {
		t.measureCall(ctx, e)
		return
	}
	locks := t.of(e.kind, e.name)
	switch e.source {
	case begun:
		locks.waits(e.standby).Add(1)
	case acquired:
		if !e.try {
			locks.waits(e.standby).Add(-1)
		}
		t.m.acquires.Record(ctx, e.took.Seconds(), locks.by(e.outcome).record...)
		if e.unacknowledged {
			t.m.unacknowledged.Add(ctx, 1, locks.options.add...)
		}
		if e.handedOver {
			t.m.handovers.Add(ctx, 1, locks.options.add...)
		}
		if e.held {
			locks.held.Add(1)
		}
	case released:
		locks.held.Add(-1)
		t.m.holds.Record(ctx, e.took.Seconds(), locks.by(e.outcome).record...)
	}
}

// observeLocks observes the numbers of locks and calls.
func (t *Telemetry) observeLocks(_ context.Context, o metric.Observer) error {
	t.queue.flush(t.measureLater) // the SDK reads the other instruments after all callbacks
	t.lockMu.RLock()
	defer t.lockMu.RUnlock()
	for _, s := range t.locks {
		o.ObserveInt64(t.m.held, s.held.Load(), s.observe)
		o.ObserveInt64(t.m.waiting, s.waiting.Load(), s.observe)
		o.ObserveInt64(t.m.standby, s.standby.Load(), s.observe)
		o.ObserveInt64(t.m.pending, s.pending.Load(), s.observe)
	}
	return nil
}
