//go:build unix

package measure

import "golang.org/x/sys/unix"

// CPU is the CPU time of this process, in seconds.
func CPU() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
