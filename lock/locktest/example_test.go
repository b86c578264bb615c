package locktest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// A test on a real server: names of its own, short leases, and nothing left.
func Example_realServer() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	pool, err := conn.Open(ctx, server)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := lock.New(pool, lock.Config{Lease: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	name := "test:" + rand.Text() // tests of others may run on this server
	err = locks.Reentrant(name).Do(ctx, func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
	// Output: <nil>
}
