package callback

import "context"

// Join returns the join of all parts except nil, in their order; nil without any.
func Join[T any](all []*T, join func(outer, inner *T) *T) *T {
	var joined *T
	for _, t := range all {
		switch {
		case t == nil:
		case joined == nil:
			joined = t
		default:
			joined = join(joined, t)
		}
	}
	return joined
}

// Start returns a callback that calls outer and then inner with the context from outer. Either may be nil.
func Start[T any](outer, inner func(context.Context, T) context.Context) func(context.Context, T) context.Context {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(ctx context.Context, v T) context.Context { return inner(outer(ctx, v), v) }
}

// End returns a callback that calls inner and then outer. Either may be nil.
func End[T any](outer, inner func(context.Context, T)) func(context.Context, T) {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(ctx context.Context, v T) {
		inner(ctx, v)
		outer(ctx, v)
	}
}

// Event returns a callback that calls outer and then inner. Either may be nil.
func Event[T any](outer, inner func(T)) func(T) {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(v T) {
		outer(v)
		inner(v)
	}
}
