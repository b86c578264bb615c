// Opened is the program of onekind with lockwire.Open, for a test of the packages linked into the program.
package main

import (
	"context"
	"log"

	"github.com/lockwire/lockwire"
)

func main() {
	ctx := context.Background()
	locks, err := lockwire.Open(ctx, "redis://localhost:6379", lockwire.Config{})
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
	if err := locks.Close(); err != nil {
		log.Fatal(err)
	}
}
