package kinds

import "sync"

// Lazy is a value created on first use. A Lazy declared by a composite literal needs no initialization, so the linker
// drops the values missing from a program.
type Lazy[T any] struct {
	Make func() T // constant

	once  sync.Once
	value T // set by once
}

// Get returns the value. Any number of goroutines may call it at once.
func (l *Lazy[T]) Get() T {
	l.once.Do(func() { l.value = l.Make() })
	return l.value
}
