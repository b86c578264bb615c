package lockotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockwire/lockwire/lock"
)

// hold is the span of a held lock.
type hold struct {
	span trace.Span
	name string
}

// unseen is the key of a context value: the call gets no spans.
type unseen struct{}

// callerKey is the key of the caller's span in the context of an acquire.
type callerKey struct{}

// describe returns the attributes of a span about a lock.
func (t *Telemetry) describe(kind, name string) []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 8), attribute.String("lock.kind", kind))
	if group := t.cfg.Group(name); group != "" {
		attributes = append(attributes, attribute.String("lock.group", group))
	}
	if !t.cfg.HideNames {
		attributes = append(attributes, attribute.String("lock.name", valid(name)))
	}
	return attributes
}

func (t *Telemetry) acquireStart(ctx context.Context, s lock.AcquireStart) context.Context {
	if !s.Try {
		t.queue.add(event{source: begun, standby: s.Standby, kind: s.Kind, name: s.Name}, t.measureLater)
	}
	if unsampled(ctx) {
		return ctx
	}
	caller := trace.SpanContextFromContext(ctx)
	ctx, span := t.tracer.Start(ctx, "lock.acquire")
	if !span.IsRecording() {
		return ctx
	}
	span.SetAttributes(append(t.describe(s.Kind, s.Name), attribute.Bool("lock.try", s.Try))...)
	t.mu.Lock()
	if h := t.names[s.Name]; h != nil {
		span.AddLink(trace.Link{
			SpanContext: h.span.SpanContext(),
			Attributes:  []attribute.KeyValue{attribute.String("lock.link", "held by")},
		})
	}
	t.mu.Unlock()
	return context.WithValue(ctx, callerKey{}, caller)
}

func (t *Telemetry) acquireEnd(ctx context.Context, e lock.AcquireEnd) {
	span := trace.SpanFromContext(ctx)
	t.note(ctx, span, event{
		source: acquired, try: e.Try, standby: e.Standby, held: e.Held != nil, handedOver: e.HandedOver, unacknowledged: e.Unacknowledged,
		kind: e.Kind, name: e.Name, outcome: e.Outcome, took: e.Elapsed,
	})
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("lock.outcome", string(e.Outcome)),
			attribute.Float64("lock.in_line", e.InLine.Seconds()),
			attribute.Int("lock.attempts", e.Attempts),
			attribute.Bool("lock.handed_over", e.HandedOver),
		)
		if e.Err != nil && e.Outcome != lock.OutcomeRefused {
			t.fail(span, e.Outcome, e.Err)
		}
		if e.Held != nil {
			t.beginHold(ctx, e)
		}
		span.End()
	}
}

// beginHold starts the span of a hold, beside the span of its acquire.
func (t *Telemetry) beginHold(ctx context.Context, e lock.AcquireEnd) {
	attributes := append(t.describe(e.Kind, e.Name), attribute.String("lock.owner", e.Held.Owner()))
	if token := e.Held.Token(); token != 0 {
		attributes = append(attributes, attribute.Int64("lock.token", token))
	}
	acquire := trace.SpanContextFromContext(ctx)
	caller, _ := ctx.Value(callerKey{}).(trace.SpanContext)
	_, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, caller), "lock.hold", trace.WithAttributes(attributes...),
		trace.WithLinks(trace.Link{SpanContext: acquire, Attributes: []attribute.KeyValue{attribute.String("lock.link", "acquired by")}}))
	h := &hold{span: span, name: e.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[e.Held] = h
	t.names[e.Name] = h
}

// holdOf returns the span of a hold; nil if there is none.
func (t *Telemetry) holdOf(l *lock.Lease) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.holds[l]; h != nil {
		return h.span
	}
	return nil
}

// endHold ends the span of a hold, and returns it to be completed; nil if there is none.
func (t *Telemetry) endHold(l *lock.Lease) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.holds[l]
	if h == nil {
		return nil
	}
	delete(t.holds, l)
	if t.names[h.name] == h {
		delete(t.names, h.name)
	}
	return h.span
}

func (t *Telemetry) releaseStart(ctx context.Context, s lock.ReleaseStart) context.Context {
	if unsampled(ctx) {
		return ctx
	}
	if s.Held != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		held := t.holdOf(s.Held)
		if held == nil {
			return context.WithValue(ctx, unseen{}, true) // the sampler has decided at the acquire
		}
		ctx = trace.ContextWithSpan(ctx, held)
	}
	ctx, span := t.tracer.Start(ctx, "lock.release")
	if span.IsRecording() {
		span.SetAttributes(t.describe(s.Kind, s.Name)...)
	}
	return ctx
}

func (t *Telemetry) releaseEnd(ctx context.Context, e lock.ReleaseEnd) {
	span := trace.SpanFromContext(ctx)
	if e.Held != nil && !e.Lost {
		t.note(ctx, span, event{source: released, kind: e.Kind, name: e.Name, outcome: e.Outcome, took: e.Age})
	}
	if span := t.endHold(e.Held); span != nil {
		span.SetAttributes(attribute.String("lock.outcome", string(e.Outcome)))
		span.End()
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.String("lock.outcome", string(e.Outcome)), attribute.Bool("lock.handed_over", e.HandedOver))
		if e.Err != nil {
			t.fail(span, e.Outcome, e.Err)
		}
		span.End()
	}
}

// fail records an error in a span. The text of an error may name the lock.
func (t *Telemetry) fail(span trace.Span, outcome lock.Outcome, err error) {
	class, text := string(outcome), err.Error()
	if outcome == lock.OutcomeFailed {
		_, class = errorOf(err)
	}
	if t.cfg.HideNames {
		text = class
	}
	span.SetAttributes(attribute.String("error.type", class))
	span.SetStatus(codes.Error, valid(text))
}

func (t *Telemetry) lost(l lock.LossInfo) {
	ctx := context.Background()
	locks := t.of(l.Kind, l.Name)
	locks.held.Add(-1)
	t.m.losses.Add(ctx, 1, locks.with("lock.loss.reason", l.Reason.Label()).add...)
	t.m.holds.Record(ctx, l.Age.Seconds(), locks.with("lock.outcome", "lost").record...)
	if span := t.endHold(l.Held); span != nil {
		span.SetAttributes(attribute.String("lock.outcome", "lost"), attribute.String("lock.loss.reason", l.Reason.Label()))
		span.SetStatus(codes.Error, "lost: "+l.Reason.String())
		span.End()
	}
}

func (t *Telemetry) renewal(r lock.RenewalInfo) {
	ctx := context.Background()
	t.m.lateness.Record(ctx, r.Lateness.Seconds())
	for outcome, n := range map[string]int{"renewed": r.Renewed, "failed": r.Failed, "gone": r.Gone} {
		if n > 0 {
			t.m.renewals.Add(ctx, int64(n), t.series.of(series{"renewals", outcome}, func() options {
				return newOptions([]attribute.KeyValue{attribute.String("lock.outcome", outcome)})
			}).add...)
		}
	}
	if r.Lateness <= r.Lease/3 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		h.span.AddEvent("renewal.late", trace.WithAttributes(attribute.Float64("lock.renewal.lateness", r.Lateness.Seconds())))
	}
}

func (t *Telemetry) background(b lock.BackgroundInfo) {
	if b.Change != lock.BackgroundRelease {
		return
	}
	n := int64(1)
	if b.Done {
		n = -1
	}
	t.of(b.Kind, b.Name).pending.Add(n)
}
