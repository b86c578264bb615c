// Radix is a small program with radix.
package main

import (
	"context"

	"github.com/mediocregopher/radix/v4"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	ctx := context.Background()
	probe.Program{Open: func(addr string) (func() error, error) {
		c, err := radix.PoolConfig{}.New(ctx, "tcp", addr)
		return func() error {
			if err := c.Do(ctx, radix.Cmd(nil, "SET", "key", "value")); err != nil {
				return err
			}
			var text string
			return c.Do(ctx, radix.Cmd(&text, "GET", "key"))
		}, err
	}}.Main()
}
