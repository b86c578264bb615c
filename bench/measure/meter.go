package measure

import (
	"runtime"
	"time"
)

// Meter measures a process between Start and Stop.
type Meter struct {
	env   Env
	begin time.Time
	cpu   float64
	mem   runtime.MemStats
}

// Start calls Env.Begin and begins to measure.
func Start(env Env) *Meter {
	m := &Meter{env: env}
	runtime.GC() // the garbage of preparing must not be collected during the measurement
	env.begin()
	runtime.ReadMemStats(&m.mem)
	m.cpu = CPU()
	m.begin = time.Now()
	return m
}

// Stop ends the measurement, calls Env.End and writes times and allocations into r.
func (m *Meter) Stop(r *Report) {
	r.Seconds = time.Since(m.begin).Seconds()
	r.CPU = CPU() - m.cpu
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.env.end()
	r.Mallocs = float64(mem.Mallocs - m.mem.Mallocs)
	r.Bytes = float64(mem.TotalAlloc - m.mem.TotalAlloc)
	r.Latency.Compact()
}
