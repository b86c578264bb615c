//go:build unix

package measure

import "golang.org/x/sys/unix"

// CPU is what this process has used, in seconds of a processor.
func CPU() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
