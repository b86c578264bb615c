package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/lock"
)

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
