package lockotel

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

var system = attribute.String("db.system.name", "redis")

func (t *Telemetry) commandStart(ctx context.Context, s conn.CommandStart) context.Context {
	if t.cfg.NoCommands {
		return ctx
	}
	if unsampled(ctx) {
		return ctx
	}
	name := s.Operation()
	o := t.operations.of([2]string{name, s.Script}, func() operation { return newOperation(name, s.Script) })
	ctx, span := t.tracer.Start(ctx, o.name, o.options...)
	if s.Count > 1 {
		span.SetAttributes(attribute.Int("db.operation.batch.size", s.Count))
	}
	return ctx
}

// unsampled reports whether ctx has a span of this process that is not recorded, or is unseen. Such a span gets no children.
func unsampled(ctx context.Context) bool {
	span := trace.SpanFromContext(ctx)
	parent := span.SpanContext()
	if !parent.IsValid() {
		return ctx.Value(unseen{}) != nil
	}
	return !span.IsRecording() && !parent.IsRemote() && !parent.IsSampled()
}

// operation is the beginning of the spans of one operation.
type operation struct {
	name    string
	options []trace.SpanStartOption
}

func newOperation(name, script string) operation {
	attributes := []attribute.KeyValue{system, attribute.String("db.operation.name", name)}
	if script != "" {
		attributes = append(attributes, attribute.String("db.stored_procedure.name", script))
		name += " " + script
	}
	return operation{name, []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...)}}
}

func (t *Telemetry) commandEnd(ctx context.Context, e conn.CommandEnd) {
	status, class := errorOf(e.Err)
	span := trace.SpanFromContext(ctx)
	t.note(ctx, span, event{
		source: called, batch: e.Batch, db: e.DB, kind: e.Name, name: e.Script, server: e.Server, status: status, failure: class, took: e.Elapsed,
	})
	if t.cfg.NoCommands {
		return
	}
	if span.IsRecording() {
		host, port := split(e.Server)
		span.SetAttributes(serverOf(host, port, e.DB)...)
		span.SetAttributes(attribute.Int("lockwire.attempts", e.Attempts), attribute.Bool("lockwire.sent", e.Sent),
			attribute.Int("network.protocol.version", e.Protocol))
		if e.Err != nil {
			span.SetAttributes(errorAttributes(status, class)...)
			span.SetStatus(codes.Error, valid(e.Err.Error()))
		}
		span.End()
	}
}

// measureCall records the duration of a call.
func (t *Telemetry) measureCall(ctx context.Context, e *event) {
	if !t.m.operations.Enabled(ctx) {
		return
	}
	name := conn.CommandStart{Name: e.kind, Batch: e.batch}.Operation()
	attributes := func() options {
		host, port := split(e.server)
		attributes := []attribute.KeyValue{system, attribute.String("db.operation.name", name)}
		if e.name != "" {
			attributes = append(attributes, attribute.String("db.stored_procedure.name", e.name))
		}
		return newOptions(append(append(attributes, serverOf(host, port, e.db)...), errorAttributes(e.status, e.failure)...))
	}
	var of options
	if e.failure == "" {
		of = t.calls.of([3]string{name, e.name, e.server}, attributes)
	} else {
		of = t.series.of(series{"db", name, e.name, e.server, e.status, e.failure}, attributes)
	}
	t.m.operations.Record(ctx, e.took.Seconds(), of.record...)
}

// serverOf returns the attributes of a server and its database.
func serverOf(host string, port, db int) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("db.namespace", strconv.Itoa(db))}
	if host != "" {
		attributes = append(attributes, attribute.String("server.address", host))
	}
	if port != 0 {
		attributes = append(attributes, attribute.Int("server.port", port))
	}
	return attributes
}

// split returns the parts of an address; a path of a socket has no port.
func split(addr string) (host string, port int) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// errorOf returns the prefix of an error reply, or "", and the class of an error, of which there are few; "" without an
// error. The first word of a reply is a prefix if it has capitals only: programs' scripts write names and numbers there.
func errorOf(err error) (status, class string) {
	if err == nil {
		return "", ""
	}
	reply, answered := errors.AsType[resp.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", "timeout"
	case errors.Is(err, context.Canceled):
		return "", "cancelled"
	case errors.Is(err, conn.ErrClosed):
		return "", "closed"
	case errors.Is(err, conn.ErrUncertain):
		return "", "unanswered"
	case errors.Is(err, conn.ErrNotSent):
		return "", "not_sent"
	case answered && reply.Prefix() != "" && strings.Trim(reply.Prefix(), capitals) == "":
		return reply.Prefix(), reply.Prefix()
	}
	return "", "_OTHER"
}

const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

func errorAttributes(status, class string) (attributes []attribute.KeyValue) {
	if class != "" {
		attributes = append(attributes, attribute.String("error.type", class))
	}
	if status != "" {
		attributes = append(attributes, attribute.String("db.response.status_code", status))
	}
	return attributes
}

func (t *Telemetry) retry(ctx context.Context, r conn.RetryInfo) {
	span := trace.SpanFromContext(ctx)
	if !t.cfg.NoCommands && span.IsRecording() {
		span.AddEvent("retry", trace.WithAttributes(
			attribute.Int("lockwire.attempts", r.Attempt),
			attribute.String("lockwire.pause", r.Pause.String()),
			attribute.String("error.message", valid(r.Err.Error())),
		))
	}
}

// pool returns the options for a pool without a name of its own, named by its address, and a class of errors.
func (t *Telemetry) pool(addr, class string) options {
	return t.series.of(series{"pool", addr, class}, func() options {
		return newOptions(append(errorAttributes("", class), attribute.String("db.client.connection.pool.name", addr)))
	})
}

func (t *Telemetry) connectionWait(ctx context.Context, w conn.WaitInfo) {
	if w.Err != nil {
		t.m.timeouts.Add(ctx, 1, t.pool(w.Addr, "").add...)
		return
	}
	t.m.waits.Record(ctx, w.Elapsed.Seconds(), t.pool(w.Addr, "").record...)
	if w.Elapsed > time.Millisecond && !t.cfg.NoCommands {
		trace.SpanFromContext(ctx).AddEvent("waited for a connection")
	}
}

func (t *Telemetry) dial(d conn.DialInfo) {
	_, class := errorOf(d.Err)
	t.m.creates.Record(context.Background(), d.Elapsed.Seconds(), t.pool(d.Addr, class).record...)
}

func (t *Telemetry) connectionLost(l conn.LostInfo) {
	t.m.lostConns.Add(context.Background(), 1, t.pool(l.Addr, "").add...)
}
