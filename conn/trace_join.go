package conn

import "github.com/lockwire/lockwire/internal/callback"

// JoinTraces returns a Trace that calls the callbacks of all traces, in their order; an End, Wait or Retry in the
// reverse order. Nil traces are left out. JoinTraces returns nil if no trace is left.
func JoinTraces(traces ...*Trace) *Trace { return callback.Join(traces, (*Trace).join) }

// join returns a Trace that calls t and then inner, whose contexts are derived from those of t.
func (t *Trace) join(inner *Trace) *Trace {
	return &Trace{
		CommandStart: callback.Start(t.CommandStart, inner.CommandStart),
		CommandEnd:   callback.End(t.CommandEnd, inner.CommandEnd),
		Wait:         callback.End(t.Wait, inner.Wait),
		Retry:        callback.End(t.Retry, inner.Retry),
		Dial:         callback.Event(t.Dial, inner.Dial),
		Lost:         callback.Event(t.Lost, inner.Lost),
		Switch:       callback.Event(t.Switch, inner.Switch),
		Topology:     callback.Event(t.Topology, inner.Topology),
	}
}
