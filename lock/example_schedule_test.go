package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A process that takes over whenever the holder goes. Package leader does so, and more.
func ExampleStandby() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Fenced("indexer").Lock(ctx, lock.Standby()) // no warning after Config.WarnAfter
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	fmt.Println("this process has taken over")
	// Output:
	// this process has taken over
}

// Once for each firing of a schedule, in whichever process is first. The job may take no time: the lock stays taken for longer than
// the clocks of the processes differ, and for a shorter time than there is between two firings.
func ExampleAtLeast() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	for process := range 3 {
		lease, err := locks.Reentrant("reminders").TryLock(ctx, lock.AtLeast(time.Minute))
		switch {
		case errors.Is(err, lock.ErrNotAcquired):
			fmt.Println("process", process, "skips the reminders")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("process", process, "writes the reminders")
			if err := lease.Unlock(ctx); err != nil {
				log.Print(err)
			}
		}
	}
	// Output:
	// process 0 writes the reminders
	// process 1 skips the reminders
	// process 2 skips the reminders
}
