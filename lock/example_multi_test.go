package lock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Two accounts are locked together, whichever of them another transfer names first.
func ExampleMulti() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	both, err := lock.NewMulti(locks.Reentrant("account:7"), locks.Fenced("account:3"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := both.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, stop := lease.Context(ctx) // ends if one of them is lost
	defer stop()
	parts := lease.Members() // in the order in which they were taken
	fmt.Println("held:", work.Err() == nil, len(parts), "tokens:", parts[0].Token() > 0, parts[1].Token() > 0)
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// held: true 2 tokens: true false
	// unlock: <nil>
}

// With one client for each of three, five or seven independent servers, here three names for it, a lock survives the loss of
// some of them.
func ExampleNewRedlock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	servers := []*lock.Client{locks, locks, locks} // each is to be a server of its own
	_, err := lock.NewRedlock(lock.RedlockConfig{},
		servers[0].Reentrant("job"), servers[1].Reentrant("job"), servers[2].Reentrant("job"))
	fmt.Println(err)
	// Output:
	// lock: invalid: a Redlock with two nodes on one server
}

// A plain lock is one that redsync and others take too.
func ExampleClient_Plain() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Plain("job").TryLock(ctx, lock.For(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	v, err := pool.Do(ctx, "GET", "job")
	if err != nil {
		log.Fatal(err)
	}
	value, _ := v.Text()
	fmt.Println(value == lease.Owner())
	// Output: true
}
