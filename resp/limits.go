package resp

import "math"

// Limits says how much a [Reader] takes from its peer. In each field zero means
// the default and a negative number means no limit, but for Depth, which
// always has one.
type Limits struct {
	// Bulk is the most bytes in one bulk, blob or verbatim string; the chunks of
	// a streamed string count together. Default 512 MiB.
	Bulk int

	// Line is the most bytes in a simple string, simple error or big number.
	// Default 64 KiB.
	Line int

	// Depth is how many aggregates may stand inside each other; attributes
	// count. Default 1024; negative, or more than 65536, means 65536.
	Depth int

	// Elements is the most values in one reply: a map counts keys and values,
	// attributes count too. Default 1<<24; without a limit it is 1<<30.
	Elements int

	// Attributes is the most pairs of attributes before one value, an empty
	// attribute counting as a pair. Default 1024.
	Attributes int

	// Total is the most bytes in one reply as it stands on the wire. Default
	// 1 GiB; less than 64 means 64.
	Total int
}

const (
	maxDepth = 1 << 16

	// maxElements leaves room for what Depth lets be added to it: items are
	// numbered by int32. It is less than the largest int of any machine, which
	// stands for all larger lengths.
	maxElements = 1 << 30

	// minTotal is longer than any reply without a string in it, so that reading
	// such a one need not look at the limit.
	minTotal = 64
)

// withDefaults returns lim with every field the number that is compared with.
func (lim Limits) withDefaults() Limits {
	def := func(p *int, zero, none int) {
		switch {
		case *p == 0:
			*p = zero
		case *p < 0 || *p > none:
			*p = none
		}
	}
	def(&lim.Bulk, 512<<20, math.MaxInt-1) // the largest int stands for all larger ones
	def(&lim.Line, 64<<10, math.MaxInt32)
	def(&lim.Depth, 1024, maxDepth)
	def(&lim.Elements, 1<<24, maxElements)
	def(&lim.Attributes, 1024, maxElements)
	def(&lim.Total, 1<<30, math.MaxInt)
	lim.Total = max(lim.Total, minTotal)
	return lim
}
