// Redsync-goredis is a small program with redsync on go-redis.
package main

import (
	"context"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	ctx := context.Background()
	probe.Program{
		Open: func(addr string) (func() error, error) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			return func() error {
				if err := c.Set(ctx, "key", "value", 0).Err(); err != nil {
					return err
				}
				return c.Get(ctx, "key").Err()
			}, nil
		},
		Lock: func(addr string) error {
			m := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr}))).NewMutex("job")
			if err := m.Lock(); err != nil {
				return err
			}
			_, err := m.Unlock()
			return err
		},
	}.Main()
}
