package remote

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Patient returns ctx without its Deadline; the result still ends with ctx. A connection would extend its answer
// timeout to the Deadline, and a patient caller would keep a dead connection alive for everyone.
func Patient(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); !ok {
		return ctx
	}
	return patient{ctx}
}

type patient struct{ context.Context }

func (patient) Deadline() (time.Time, bool) { return time.Time{}, false }

// Dividing is Patient for a caller that can divide a command with several keys.
func Dividing(ctx context.Context) context.Context {
	if ctx.Value(conn.NoTryAgain) == true {
		return ctx
	}
	return dividing{patient{ctx}}
}

type dividing struct{ patient }

func (d dividing) Value(key any) any {
	if key == conn.NoTryAgain {
		return true
	}
	return d.Context.Value(key)
}

// NoRepeat returns ctx for requests of which a refusal is the answer: see [conn.NoRepeat].
func NoRepeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, conn.NoRepeat, true)
}

// WithValues returns a context that ends with ctx and also has the values of another context.
func WithValues(ctx, values context.Context) context.Context { return valued{ctx, values} }

type valued struct {
	context.Context
	values context.Context
}

// Value asks ctx first: the cause of the end is a value, too, and package context needs no goroutine to derive from a context of its own.
func (v valued) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.values.Value(key)
}
