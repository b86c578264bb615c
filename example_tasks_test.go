package lockwire_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

// The tasks of README.md.
func Example_tasks() {
	ctx := context.Background()
	locks, err := lockwire.Open(ctx, os.Getenv("REDIS_URL"), lockwire.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	for _, task := range []func() error{
		func() error { return try(ctx, locks) },
		func() error { return patiently(ctx, locks) },
		func() error { return long(ctx, locks) },
		func() error { return told(ctx, locks) },
		func() error { return once(ctx, locks) },
		func() error { return once(ctx, locks) },
		func() error { return lead(ctx, locks) },
	} {
		if err := task(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// try
	// wait
	// long
	// told
	// once
	// lead
}

func try(ctx context.Context, locks *lockwire.Client) error {
	lease, err := locks.Reentrant("orders").TryLock(ctx)
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil // somebody else has the lock
	}
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return work(ctx, "try")
}

func patiently(ctx context.Context, locks *lockwire.Client) error {
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease, err := locks.Reentrant("orders").Lock(waiting)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return work(ctx, "wait")
}

func long(ctx context.Context, locks *lockwire.Client) error {
	return locks.Reentrant("orders").Do(ctx, func(ctx context.Context) error {
		return work(ctx, "long") // the lock is renewed meanwhile, for two hours at most
	}, lock.AtMost(2*time.Hour))
}

func told(ctx context.Context, locks *lockwire.Client) error {
	lease, err := locks.Fenced("orders").Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	held, cancel := lease.Context(ctx) // held ends when the lock is lost
	defer cancel()
	err = work(held, "told")
	return errors.Join(err, lease.Err()) // nil: the lock was held all the time
}

func once(ctx context.Context, locks *lockwire.Client) error {
	lease, err := locks.Reentrant("report").TryLock(ctx, lock.AtLeast(time.Minute))
	if err == nil { // Unlock leaves the lock taken for the rest of the minute: clocks differ by less
		err = errors.Join(work(ctx, "once"), lease.Unlock(ctx))
	}
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil
	}
	return err
}

func lead(ctx context.Context, locks *lockwire.Client) error {
	return leader.Run(ctx, locks.Client, "billing", leader.Config{}, func(ctx context.Context) error {
		return work(ctx, "lead") // in one process at a time, until ctx ends; leader.Token(ctx) is the fencing token
	})
}

func work(_ context.Context, task string) error {
	fmt.Println(task)
	return nil
}
