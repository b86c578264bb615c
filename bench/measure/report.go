package measure

// Report is the result of a process between Begin and End.
type Report struct {
	Ops     int64
	Seconds float64
	CPU     float64 // seconds of this process, user and system
	Mallocs float64
	Bytes   float64
	Latency Histogram
	Holds   []Hold             `json:",omitempty"` // of contended locks
	Extra   map[string]float64 `json:",omitempty"` // numbers of only this case, by name in the tables
}

// Hold is a holding of a contended lock, in ns of a clock common to all processes of the machine.
type Hold struct {
	Asked    int64 // Lock was called
	Got      int64 // Lock returned
	Released int64 // Unlock was called; 0 if the measurement ended first
	Caller   int32 // unique among all processes
}

// Set notes a number of only this case.
func (r *Report) Set(name string, value float64) {
	if r.Extra == nil {
		r.Extra = map[string]float64{}
	}
	r.Extra[name] = value
}
