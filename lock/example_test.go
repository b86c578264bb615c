package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// connect is what the examples begin with. Close both when done, the client first.
func connect(ctx context.Context) (*conn.Pool, *lock.Client) {
	server, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	pool, err := conn.Open(ctx, server)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool, locks
}

func ExampleReentrant_Lock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lease, err := locks.Reentrant("orders").Lock(wait)
	if err != nil {
		log.Fatal(err)
	}
	work, stop := lease.Context(ctx) // ends if the lock is lost
	defer stop()
	fmt.Println("working:", work.Err() == nil)
	fmt.Println("unlock:", lease.Unlock(ctx))
	fmt.Println("why the context ended:", context.Cause(work))
	// Output:
	// working: true
	// unlock: <nil>
	// why the context ended: lock: released
}

func ExampleReentrant_TryLock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	first, err := locks.Reentrant("report").TryLock(ctx, lock.For(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer first.Unlock(ctx)
	_, err = locks.Reentrant("report").TryLock(ctx)
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output: true
}

func ExampleReentrant_Do() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	invoices := locks.Reentrant("invoices")
	err := invoices.Do(ctx, func(ctx context.Context) error {
		_, err := invoices.ForceUnlock(ctx) // somebody takes the lock away
		return err
	})
	fmt.Println(errors.Is(err, lock.ErrLost))
	// Output: true
}

func ExampleReentrant_Info() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	stock := locks.Reentrant("stock")
	lease, err := stock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	info, err := stock.Info(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Locked, info.Holders[0].Owner == lease.Owner(), info.Holders[0].Holds)
	// Output: true true 1
}

func ExampleOwner() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	me := locks.NewOwner()
	account := locks.Reentrant("account")
	err := account.Do(ctx, func(ctx context.Context) error {
		// Called by the holder: a further hold of the same lock, no deadlock.
		return account.Do(ctx, func(context.Context) error {
			fmt.Println("twice")
			return nil
		}, lock.As(me))
	}, lock.As(me))
	if err != nil {
		log.Fatal(err)
	}
	// Output: twice
}

func ExampleLease_Lost() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Reentrant("short").Lock(ctx, lock.For(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	<-lease.Lost()
	lost, _ := errors.AsType[*lock.LostError](lease.Err())
	fmt.Println(lost.Reason)
	// Output: its lease ended
}

func ExampleClient_Stats() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Reentrant("batch").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	stats := locks.Stats()
	fmt.Println(stats.Leases, stats.Acquired, stats.Waiting)
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// 1 1 0
	// <nil>
}

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

func ExampleClient_Watch() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()
	if _, err := pool.Do(ctx, "CONFIG", "SET", "notify-keyspace-events", "Kg$hxe"); err != nil {
		log.Fatal(err)
	}

	lease, err := locks.Reentrant("orders:1").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for ev, err := range locks.Watch(ctx, "orders:*") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.What, ev.Name, ev.Owner == lease.Owner())
		switch ev.What {
		case lock.EventWatching:
			if err := lease.Unlock(ctx); err != nil {
				log.Fatal(err)
			}
		case lock.EventReleased:
			return
		}
	}
	// Output:
	// held orders:1 true
	// watching  false
	// released orders:1 true
}

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
	wait, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
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
