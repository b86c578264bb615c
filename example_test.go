package lockwire_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lockwire/lockwire"
)

func Example() {
	ctx := context.Background()
	locks, err := lockwire.Open(ctx, os.Getenv("REDIS_URL"), lockwire.Config{}) // redis://user:password@host:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Reentrant("orders").Do(ctx, func(ctx context.Context) error {
		fmt.Println("nobody else has it") // ctx ends if the lock is lost
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: nobody else has it
}
