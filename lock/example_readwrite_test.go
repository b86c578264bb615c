package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/lock"
)

func ExampleReadWrite() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	prices := locks.ReadWrite("prices")
	first, err := prices.Read().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := prices.Read().Lock(ctx) // beside the first
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.Write().TryLock(ctx)
	fmt.Println("write:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println(first.Unlock(ctx), second.Unlock(ctx))
	err = prices.Write().Do(ctx, func(context.Context) error {
		info, err := prices.Write().Info(ctx)
		fmt.Println("mode:", info.Mode)
		return err
	})
	fmt.Println(err)
	// Output:
	// write: true
	// <nil> <nil>
	// mode: write
	// <nil>
}

func ExampleReadLock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	catalogue := locks.ReadWrite("catalogue").Read()
	err := catalogue.Do(ctx, func(ctx context.Context) error {
		info, err := catalogue.Info(ctx)
		fmt.Println(info.Mode, len(info.Holders))
		return err
	})
	fmt.Println(err)
	// Output:
	// read 1
	// <nil>
}

func ExampleWriteLock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	// An owner that reads would wait for itself.
	me, ledger := locks.NewOwner(), locks.ReadWrite("ledger")
	err := ledger.Read().Do(ctx, func(ctx context.Context) error {
		_, err := ledger.Write().Lock(ctx, lock.As(me))
		return err
	}, lock.As(me))
	fmt.Println(errors.Is(err, lock.ErrUpgrade))
	// Output: true
}

func ExampleLease_Downgrade() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	index := locks.ReadWrite("index")
	write, err := index.Write().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Rebuild, and then let others read while this one still does: no writer comes in between.
	read, err := write.Downgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	other, err := index.Read().TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(other.Unlock(ctx), read.Unlock(ctx))
	// Output: <nil> <nil>
}
