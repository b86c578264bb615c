package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/lockwire/lockwire"
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
four times a second. The exit code is 75 if the lock is not free in time, and 1 for a number, the key of a Semaphore or a
CountDownLatch.`,
		examples: []example{
			{"until the lock is free", `lockwire wait nightly`, 0},
			{"for 300 milliseconds at most", `lockwire wait orders --timeout 300ms`, codeNotAcquired},
		},
		least: 1, most: 1,
		define: func(flags *flag.FlagSet) action {
			var timeout time.Duration
			patience(flags, &timeout, "timeout", "longest `DURATION` of the wait, 0s for one look; default: without end")
			return connected(func(ctx context.Context, in *invocation, client *lockwire.Client) error {
				return wait(ctx, in, client, timeout)
			})
		},
	}
}

func wait(ctx context.Context, in *invocation, client *lockwire.Client, timeout time.Duration) error {
	var late <-chan time.Time
	if timeout != forever {
		late = time.After(timeout)
	}
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		seen, err := client.Inspect(ctx, in.args[0])
		if err != nil {
			return because(ctx, err)
		}
		switch seen.Shape {
		case lock.ShapeOther:
			return fmt.Errorf("%s: no lock: the key holds something else", printable(in.args[0]))
		case lock.ShapeNumber:
			return fmt.Errorf("%s: no lock: the key holds a number", printable(in.args[0]))
		}
		if !seen.Info.Locked {
			if in.json() {
				printJSON(in.out, map[string]any{"name": in.args[0], "held": false})
			}
			return nil
		}
		select {
		case <-again.C:
		case <-late:
			return &exitError{codeNotAcquired, fmt.Errorf("%s: still held", printable(in.args[0]))}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
