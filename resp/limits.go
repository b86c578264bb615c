package resp

import "math"

// Limits bounds the memory and work that a peer can demand of a [Reader]. In each field 0 means the
// default and a negative number means no limit, except for Depth, which is always limited.
type Limits struct {
	// Bulk limits the bytes of a bulk string, blob error or verbatim string; the chunks of a
	// streamed string add up. Default 512 MiB.
	Bulk int

	// Line limits the bytes of a simple string, simple error or big number. Default 64 KiB.
	Line int

	// Depth limits the nesting of aggregates; attributes count as a level. Default 1024. A negative
	// number, or more than 65536, means 65536.
	Depth int

	// Elements limits the values in a reply. Keys and values of a map count separately, and so do
	// attributes. Default 1<<24; without a limit 1<<30 applies.
	Elements int

	// Attributes limits the pairs of attributes before a value. An empty attribute counts as a
	// pair. Default 1024.
	Attributes int

	// Total limits the encoded bytes of a whole reply. Default 1 GiB; less than 64 means 64.
	Total int
}

const (
	maxDepth = 1 << 16

	// maxElements keeps the number of items within an int32, their index. It is also below the largest
	// int of any platform, which stands for every larger length.
	maxElements = 1 << 30

	// minTotal is longer than any reply without a string, so reading such replies need not check
	// the limit.
	minTotal = 64
)

// withDefaults returns lim with the effective limit in every field.
func (lim Limits) withDefaults() Limits {
	def := func(p *int, zero, none int) {
		switch {
		case *p == 0:
			*p = zero
		case *p < 0 || *p > none:
			*p = none
		}
	}
	def(&lim.Bulk, 512<<20, math.MaxInt-1) // the largest int stands for every larger length
	def(&lim.Line, 64<<10, math.MaxInt32)
	def(&lim.Depth, 1024, maxDepth)
	def(&lim.Elements, 1<<24, maxElements)
	def(&lim.Attributes, 1024, maxElements)
	def(&lim.Total, 1<<30, math.MaxInt)
	lim.Total = max(lim.Total, minTotal)
	return lim
}
