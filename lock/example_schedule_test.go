package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Once for each firing of a schedule, in whichever process is first. The lock's name contains the planned time, and the lock
// is not released: its lease outlasts the differences between the clocks of the processes.
func Example_schedule() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	planned := time.Date(2026, time.March, 1, 6, 0, 0, 0, time.UTC) // as the scheduler says, not time.Now
	for process := range 3 {
		firing := locks.Reentrant("report:" + planned.Format(time.RFC3339))
		_, err := firing.TryLock(ctx, lock.For(2*time.Minute))
		switch {
		case errors.Is(err, lock.ErrNotAcquired):
			fmt.Println("process", process, "skips", planned)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("process", process, "runs", planned)
		}
	}
	// Output:
	// process 0 runs 2026-03-01 06:00:00 +0000 UTC
	// process 1 skips 2026-03-01 06:00:00 +0000 UTC
	// process 2 skips 2026-03-01 06:00:00 +0000 UTC
}
