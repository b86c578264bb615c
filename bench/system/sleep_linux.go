package system

import (
	"time"

	"golang.org/x/sys/unix"
)

// exactSleep lets this thread sleep as exactly as the system can.
func exactSleep() {
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// sleep blocks the thread, for so long or less. It is more exact than a timer.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&t, nil)
}
