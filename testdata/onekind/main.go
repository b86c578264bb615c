// Onekind is a program with locks of a single kind, for a test of the packages linked into the program.
package main

import (
	"context"
	"log"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

func main() {
	ctx := context.Background()
	pool, err := conn.Open(ctx, conn.Config{Addr: "localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locks.Reentrant("job").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
}
