package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// look is the pause between looks at a lock.
const look = 250 * time.Millisecond

func waitCommand() *command {
	return &command{
		name:  "wait",
		args:  "NAME [flags]",
		short: "wait until a lock is free, without taking it",
		long: `
Waits until the lock NAME, of any kind, is free, and does not take it: another process may have it again at once. It looks
four times a second. The exit code is 75 if the lock is not free in time.`,
		examples: []example{
			{"until the lock is free", `lockwire wait nightly`, 0},
			{"for 300 milliseconds at most", `lockwire wait orders --timeout 300ms`, codeNotAcquired},
		},
		least: 1, most: 1,
		define: func(flags *flag.FlagSet) func(context.Context, *invocation) error {
			timeout := flags.Duration("timeout", 0, "longest `DURATION` of the wait; default: without end")
			return func(ctx context.Context, in *invocation) error { return wait(ctx, in, *timeout) }
		},
	}
}

func wait(ctx context.Context, in *invocation, timeout time.Duration) error {
	client, err := in.open(ctx, lock.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		seen, err := client.Inspect(ctx, in.args[0])
		if err != nil {
			return because(ctx, fmt.Errorf("%s: %w", printable(in.args[0]), err))
		}
		if !seen.Info.Locked {
			return nil
		}
		select {
		case <-again.C:
		case <-limited.Done():
			if ctx.Err() == nil {
				return &exitError{codeNotAcquired, fmt.Errorf("%s: still held", printable(in.args[0]))}
			}
			return context.Cause(ctx)
		}
	}
}
