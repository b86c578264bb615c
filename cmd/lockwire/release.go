package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/lockwire/lockwire/lock"
)

func releaseCommand() *command {
	return &command{
		name:  "release",
		args:  "NAME --owner OWNER [flags]",
		short: "take a lock away from an owner",
		long: `
Frees the lock NAME, of any kind, if OWNER still has it: a lock that has passed on to another owner in the meantime stays.
lockwire status shows the owners; for a semaphore, OWNER is the id of a permit. The owner is told within a second if it is a
program with this library, and at its next renewal otherwise. Its work goes on until then: make sure that it may.
The exit code is 1 if OWNER does not have the lock.`,
		examples: []example{
			{"nothing happens to another owner", `lockwire release orders --owner 0a1b2c3d-0000-0000-0000-000000000000:1`, codeFailed},
			{"the present owner, whoever that is",
				`lockwire release invoices --owner "$(lockwire status invoices -o json | grep -o '"owner":"[^"]*' | head -n 1 | cut -d '"' -f 4)"`, 0},
		},
		least: 1, most: 1,
		define: func(flags *flag.FlagSet) action {
			owner := flags.String("owner", "", "`OWNER` from whom the lock is taken, as lockwire status writes it")
			return func(ctx context.Context, in *invocation) error { return release(ctx, in, *owner) }
		},
	}
}

func release(ctx context.Context, in *invocation, owner string) error {
	if owner == "" {
		return usageError("--owner is missing: lockwire status %s shows the owners", in.args[0])
	}
	client, err := in.open(ctx, lock.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	released, err := client.ForceUnlockOwner(ctx, in.args[0], owner)
	switch {
	case err != nil:
		return because(ctx, err)
	case in.json():
		printJSON(in.out, map[string]any{"name": in.args[0], "owner": owner, "released": released})
	case released:
		fmt.Fprintf(in.out, "%s: released\n", printable(in.args[0]))
	default:
		return fmt.Errorf("%s: %s does not have the lock", printable(in.args[0]), owner)
	}
	if !released {
		return &exitError{code: codeFailed}
	}
	return nil
}
