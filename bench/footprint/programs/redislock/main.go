// Redislock is a small program with redislock.
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
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
			held, err := redislock.Obtain(ctx, redis.NewClient(&redis.Options{Addr: addr}), "job", time.Minute, nil)
			if err != nil {
				return err
			}
			return held.Release(ctx)
		},
	}.Main()
}
