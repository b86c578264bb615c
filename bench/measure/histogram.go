package measure

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets as wide as a sixteenth of their power of two, with an error of 3 % at most. It is for a
// single goroutine; Add sums histograms.
type Histogram struct {
	Counts map[int]int64 `json:",omitempty"` // by bucket, filled by Compact
	dense  []int64
}

const subBuckets = 16

func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < subBuckets {
		return int(n)
	}
	shift := bits.Len64(n) - 5 // leaves a number from 16 to 31
	return shift*subBuckets + int(n>>shift)
}

// middle is the duration that represents a bucket.
func middle(b int) float64 {
	if b < 2*subBuckets {
		return float64(b)
	}
	shift := b/subBuckets - 1
	return math.Ldexp(float64(b-shift*subBuckets)+0.5, shift)
}

// Record counts a duration.
func (h *Histogram) Record(d time.Duration) {
	b := bucket(d)
	if b >= len(h.dense) {
		h.dense = append(h.dense, make([]int64, b+subBuckets-len(h.dense))...)
	}
	h.dense[b]++
}

// Compact puts all recorded durations into Counts.
func (h *Histogram) Compact() {
	for b, n := range h.dense {
		if n == 0 {
			continue
		}
		if h.Counts == nil {
			h.Counts = map[int]int64{}
		}
		h.Counts[b] += n
	}
	h.dense = nil
}

// Add adds the counts of other, and compacts other.
func (h *Histogram) Add(other *Histogram) {
	other.Compact()
	for b, n := range other.Counts {
		if h.Counts == nil {
			h.Counts = map[int]int64{}
		}
		h.Counts[b] += n
	}
}

// Quantile returns the duration, in ns, not exceeded by a share of q of the recorded durations; 0 without any.
func (h *Histogram) Quantile(q float64) float64 {
	h.Compact()
	var total int64
	highest := 0
	for b, n := range h.Counts {
		total += n
		highest = max(highest, b)
	}
	rank := int64(math.Ceil(q * float64(total)))
	var seen int64
	for b := 0; b <= highest && total > 0; b++ {
		seen += h.Counts[b]
		if seen >= max(rank, 1) {
			return middle(b)
		}
	}
	return 0
}
