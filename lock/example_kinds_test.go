package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Who waits gets the lock in the order in which the server saw them come, whatever process they are in.
func ExampleClient_Fair() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Fair("printer").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	info, err := locks.Fair("printer").Info(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", len(info.Queue))
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// waiting: 0
	// unlock: <nil>
}

// Each holder has a larger token than those before it. Package fence shows what to do with it.
func ExampleClient_Fenced() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	last := int64(0)
	for range 3 {
		lease, err := locks.Fenced("ledger").Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("larger:", lease.Token() > last)
		last = lease.Token()
		if err := lease.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// larger: true
	// larger: true
	// larger: true
}

// An order and its customer are locked together, at the cost of one lock. Another order of the same customer has to wait.
func ExampleClient_FasterMulti() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.FasterMulti("accounts", "order:17", "customer:3").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.FasterMulti("accounts", "order:18", "customer:3").TryLock(ctx)
	fmt.Println("the same customer:", errors.Is(err, lock.ErrNotAcquired))
	other, err := locks.FasterMulti("accounts", "order:19", "customer:4").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("another customer:", other.Unlock(ctx))
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// the same customer: true
	// another customer: <nil>
	// unlock: <nil>
}

// An Owner with an order takes the order again, together with its customer.
func ExampleClient_FasterMulti_owner() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	owner := locks.NewOwner()
	order, err := locks.FasterMulti("accounts", "order:17").Lock(ctx, lock.As(owner))
	if err != nil {
		log.Fatal(err)
	}
	both, err := locks.FasterMulti("accounts", "order:17", "customer:3").Lock(ctx, lock.As(owner))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("unlock both:", both.Unlock(ctx))
	fmt.Println("the order is held:", order.Check(ctx))
	fmt.Println("unlock the order:", order.Unlock(ctx))
	// Output:
	// unlock both: <nil>
	// the order is held: <nil>
	// unlock the order: <nil>
}

// A waiter of a Spin lock looks every 5 ms, without pub/sub.
func ExampleClient_Spin() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	tick := locks.Spin("tick", lock.ConstantBackoff(5*time.Millisecond))
	err := tick.Do(ctx, func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
	// Output: <nil>
}

// An owner is told at once that it has the lock, where a Reentrant would count another hold.
func ExampleClient_NonReentrant() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	me := lock.As(locks.NewOwner())
	lease, err := locks.NonReentrant("import").Lock(ctx, me)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	_, err = locks.NonReentrant("import").Lock(ctx, me)
	fmt.Println(errors.Is(err, lock.ErrReentry))
	// Output: true
}

// The same for a lock whose waiters are served in order.
func ExampleClient_NonReentrantFair() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	err := locks.NonReentrantFair("import").Do(ctx, func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
	// Output: <nil>
}

// What an operator asks: which locks are taken, and by whom.
func ExampleClient_List() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Reentrant("list:orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	for l, err := range locks.List(ctx, "list:*") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Name, l.Shape, l.Info.Holders[0].Owner == lease.Owner())
	}
	// Output: list:orders lock true
}
