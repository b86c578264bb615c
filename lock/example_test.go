package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
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
