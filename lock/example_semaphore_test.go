package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func ExampleSemaphore() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	slots := locks.Semaphore("slots")
	if _, err := slots.TrySetPermits(ctx, 5); err != nil { // the first process to come sets it up
		log.Fatal(err)
	}
	if err := slots.Acquire(ctx, 3); err != nil {
		log.Fatal(err)
	}
	fmt.Println("three more:", slots.TryAcquire(ctx, 3))
	if err := slots.Release(ctx, 3); err != nil {
		log.Fatal(err)
	}
	free, err := slots.Available(ctx)
	fmt.Println("free:", free, err)
	// Output:
	// three more: lock "slots": not acquired
	// free: 5 <nil>
}

func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	err := locks.Semaphore("typo").Acquire(ctx, 1)
	fmt.Println(errors.Is(err, lock.ErrNotSet))
	wait, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	err = locks.Semaphore("typo").Acquire(wait, 1, lock.WaitForSetup())
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output:
	// true
	// true
}

func ExamplePermitSemaphore() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	licences := locks.PermitSemaphore("licences")
	if err := licences.SetPermits(ctx, 2); err != nil {
		log.Fatal(err)
	}
	lease, err := licences.Acquire(ctx) // renewed until Unlock; free 30 s after the process has died
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	work, stop := lease.Context(ctx) // ends if the permit is lost
	defer stop()
	free, err := licences.Available(ctx)
	fmt.Println(len(lease.PermitIDs()[0]), free, err, work.Err())
	// Output: 32 1 <nil> <nil>
}

func ExamplePermitSemaphore_Release() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	tickets := locks.PermitSemaphore("tickets")
	if err := tickets.SetPermits(ctx, 10); err != nil {
		log.Fatal(err)
	}
	lease, err := tickets.AcquireMany(ctx, 2, lock.Forever())
	if err != nil {
		log.Fatal(err)
	}
	// The ids may go to another process, and to one that uses Redisson, which returns the permits.
	fmt.Println(tickets.Release(ctx, lease.PermitIDs()...))
	fmt.Println(errors.Is(lease.Err(), lock.ErrLost))
	// Output:
	// <nil>
	// true
}

func ExampleCountDownLatch() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	started := locks.CountDownLatch("started")
	if _, err := started.TrySetCount(ctx, 3); err != nil {
		log.Fatal(err)
	}
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			if err := started.CountDown(ctx); err != nil {
				log.Print(err)
			}
		})
	}
	fmt.Println(started.Wait(ctx))
	workers.Wait()
	// Output: <nil>
}
