// Rueidislock is a small program with rueidislock.
package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	ctx := context.Background()
	option := func(addr string) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}
	}
	probe.Program{
		Open: func(addr string) (func() error, error) {
			c, err := rueidis.NewClient(option(addr))
			return func() error {
				if err := c.Do(ctx, c.B().Set().Key("key").Value("value").Build()).Error(); err != nil {
					return err
				}
				return c.Do(ctx, c.B().Get().Key("key").Build()).Error()
			}, err
		},
		Lock: func(addr string) error {
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option(addr), KeyMajority: 1})
			if err != nil {
				return err
			}
			_, unlock, err := locker.WithContext(ctx, "job")
			if err == nil {
				unlock()
			}
			return err
		},
	}.Main()
}
