package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
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

// A service of which one process at a time is active, until SIGTERM ends ctx.
func ExampleRun() {
	ctx, terminate := context.WithCancel(context.Background())
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	health := &leader.Health{} // health.Check(10*time.Second) for /livez
	cfg := leader.Config{Address: "10.0.0.7:8080", StopBefore: 5 * time.Second, Health: health}
	err := leader.Run(ctx, locks, "billing", cfg, func(ctx context.Context) error {
		fmt.Println("leading, with a token:", leader.Token(ctx) > 0)
		terminate() // as signal.NotifyContext does
		<-ctx.Done()
		fmt.Println("still the leader while it stops:", context.Cause(ctx))
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled), health.Check(0))
	// Output:
	// leading, with a token: true
	// still the leader while it stops: context canceled
	// true <nil>
}

func ExampleObserve() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	err := leader.Run(ctx, locks, "mailer", leader.Config{Address: "10.0.0.7:8080"}, func(ctx context.Context) error {
		now, err := leader.Observe(ctx, locks, "mailer") // in any process
		fmt.Println(now.Address, now.Token == leader.Token(ctx), time.Since(now.Since) < time.Minute)
		return err
	})
	fmt.Println(err)
	now, err := leader.Observe(ctx, locks, "mailer")
	fmt.Println(now.Owner == "", err)
	// Output:
	// 10.0.0.7:8080 true true
	// <nil>
	// true <nil>
}
