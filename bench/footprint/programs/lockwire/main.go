// Lockwire is a small program with lockwire.
package main

import (
	"context"

	"github.com/lockwire/lockwire/bench/footprint/probe"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

func main() {
	ctx := context.Background()
	probe.Program{
		Open: func(addr string) (func() error, error) {
			pool, err := conn.Open(ctx, conn.Config{Addr: addr})
			return func() error {
				if _, err := pool.Do(ctx, "SET", "key", "value"); err != nil {
					return err
				}
				_, err := pool.Do(ctx, "GET", "key")
				return err
			}, err
		},
		Lock: func(addr string) error {
			pool, err := conn.Open(ctx, conn.Config{Addr: addr})
			if err != nil {
				return err
			}
			locks, err := lock.New(pool, lock.Config{})
			if err != nil {
				return err
			}
			lease, err := locks.Reentrant("job").Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		},
	}.Main()
}
