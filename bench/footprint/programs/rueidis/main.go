// Rueidis is a small program with rueidis.
package main

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	ctx := context.Background()
	probe.Program{Open: func(addr string) (func() error, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
		return func() error {
			if err := c.Do(ctx, c.B().Set().Key("key").Value("value").Build()).Error(); err != nil {
				return err
			}
			return c.Do(ctx, c.B().Get().Key("key").Build()).Error()
		}, err
	}}.Main()
}
