package measure

// Report is what one process measured between Begin and End.
type Report struct {
	Ops     int64
	Seconds float64
	CPU     float64 // seconds of this process, user and system
	Mallocs float64
	Bytes   float64
	Latency Histogram
	Holds   []Hold             `json:",omitempty"` // of contended locks
	Extra   map[string]float64 `json:",omitempty"` // what only this case knows, by its name in the tables
}

// Hold is one holding of a contended lock, in ns of a clock that all processes of the machine share.
type Hold struct {
	Asked    int64 // Lock was called
	Got      int64 // Lock returned
	Released int64 // Unlock was called; 0 if the measurement ended first
	Caller   int32 // unique among all processes
}

// Set notes a number that only this case knows.
func (r *Report) Set(name string, value float64) {
	if r.Extra == nil {
		r.Extra = map[string]float64{}
	}
	r.Extra[name] = value
}
