package claim

import "time"

// Series is a run of consecutive hand-overs.
type Series struct {
	Length int
	Since  time.Time // the time of the acquire before the series
}

// Next returns the series extended by one hand-over.
func (s Series) Next() Series { return Series{s.Length + 1, s.Since} }

// MayGoOn reports whether a series of at most most hand-overs, within at most lasts, may continue.
func (s Series) MayGoOn(most int, lasts, lease time.Duration) bool {
	return s.Length < most && time.Since(s.Since) <= min(lasts, lease/3)
}
