package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/lockwire/lockwire"
)

func listCommand() *command {
	return &command{
		name:  "list",
		args:  "[GLOB] [flags]",
		short: "show the held locks",
		long: `
Shows the held locks, or those with names that match GLOB, such as 'orders:*': the kind, the owners with their number of
holds and the time left until the lease ends. It finds the locks of all programs, also of Redisson. With -o json it prints
one line for each lock.

The command scans all keys of the server in small steps. It guesses the kind from the key. A lock that is taken or
released meanwhile may be missing. Semaphores that count permits without leases and latches cannot be told from other
numbers, and are not listed.`,
		examples: []example{
			{"all held locks", `lockwire list`, 0},
			{"names with a prefix, as lines of JSON", `lockwire list 'orders*' -o json`, 0},
		},
		most: 1,
		run:  connected(list),
	}
}

func list(ctx context.Context, in *invocation, client *lockwire.Client) error {
	states, err := listed(ctx, client, in.first("*"))
	if err != nil {
		return err
	}
	printStates(in.out, in.json(), states)
	return nil
}

// listed returns the held locks in the order of their names.
func listed(ctx context.Context, client *lockwire.Client, pattern string) ([]lockState, error) {
	found := map[string]lockState{} // the scan may meet a name twice
	for l, err := range client.List(ctx, pattern) {
		if err != nil {
			return nil, because(ctx, err)
		}
		found[l.Name] = stateOf(l)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b lockState) int { return strings.Compare(a.Name, b.Name) }), nil
}

// because returns the cause of ctx if ctx has ended, else err.
func because(ctx context.Context, err error) error {
	return cmp.Or(context.Cause(ctx), err)
}
