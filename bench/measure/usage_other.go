//go:build !unix

package measure

// CPU is 0: this system has no getrusage.
func CPU() float64 { return 0 }
