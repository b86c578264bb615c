//go:build !unix

package measure

// cpuSeconds is 0: this system has no getrusage.
func cpuSeconds() float64 { return 0 }
