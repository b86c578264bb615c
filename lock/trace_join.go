package lock

import "github.com/lockwire/lockwire/internal/callback"

// JoinTraces returns a Trace that calls the callbacks of all traces, in their order; an End in the reverse order. Nil
// traces are left out. JoinTraces returns nil if no trace is left.
func JoinTraces(traces ...*Trace) *Trace { return callback.Join(traces, (*Trace).join) }

// join returns a Trace that calls t and then inner, whose contexts are derived from those of t.
func (t *Trace) join(inner *Trace) *Trace {
	return &Trace{
		AcquireStart: callback.Start(t.AcquireStart, inner.AcquireStart),
		AcquireEnd:   callback.End(t.AcquireEnd, inner.AcquireEnd),
		ReleaseStart: callback.Start(t.ReleaseStart, inner.ReleaseStart),
		ReleaseEnd:   callback.End(t.ReleaseEnd, inner.ReleaseEnd),
		Lost:         callback.Event(t.Lost, inner.Lost),
		Renewal:      callback.Event(t.Renewal, inner.Renewal),
		Background:   callback.Event(t.Background, inner.Background),
	}
}
