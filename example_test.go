package lockwire_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

func Example() {
	ctx := context.Background()
	server, err := conn.ParseURL(os.Getenv("REDIS_URL")) // redis://user:password@host:6379/0
	if err != nil {
		log.Fatal(err)
	}
	pool, err := conn.Open(ctx, server)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := lock.New(pool, lock.Config{})
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
