// Many is a program that uses several locks as one, and asks about locks. A test looks what is linked into it.
package main

import (
	"context"
	"log"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

func main() {
	ctx := context.Background()
	pool, err := conn.Open(ctx, conn.Config{})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	multi, err := lock.NewMulti(locks.Reentrant("a"), locks.Reentrant("b"))
	if err != nil {
		log.Fatal(err)
	}
	redlock, err := lock.NewRedlock(lock.RedlockConfig{}, locks.Reentrant("a"))
	if err != nil {
		log.Fatal(err)
	}
	log.Println(multi.TryLock(ctx))
	log.Println(redlock.Lock(ctx))
	log.Println(locks.FasterMulti("group", "value").TryLock(ctx))
	log.Println(locks.Inspect(ctx, "a"))
	for event, err := range locks.Watch(ctx, "") {
		log.Println(event, err)
	}
	log.Println(leader.Run(ctx, locks, "a", leader.Config{}, func(context.Context) error { return nil }))
}
