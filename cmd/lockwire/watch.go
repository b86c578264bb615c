package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func watchCommand() *command {
	return &command{
		name:  "watch",
		args:  "[GLOB] [flags]",
		short: "show locks being taken and released",
		long: `
Shows a line for each lock that is taken or released, or whose owners change, until a signal ends it: the locks with names
that match GLOB, or all. It compares what lockwire list finds once in --every, and does not see what happens in between.
The first lines are the locks held at the beginning.`,
		examples: []example{
			{"for a second, as lines of JSON", `timeout 1 lockwire watch 'orders*' -o json`, 124},
		},
		most: 1,
		define: func(flags *flag.FlagSet) func(context.Context, *invocation) error {
			every := flags.Duration("every", time.Second, "`DURATION` between two looks")
			return func(ctx context.Context, in *invocation) error { return watch(ctx, in, *every) }
		},
	}
}

func watch(ctx context.Context, in *invocation, every time.Duration) error {
	if every < 10*time.Millisecond {
		return usageError("--every must be 10ms or more")
	}
	pattern := "*"
	if len(in.args) > 0 {
		pattern = in.args[0]
	}
	client, err := in.open(ctx, lock.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	again := time.NewTicker(every)
	defer again.Stop()
	before := map[string]lockState{}
	for {
		states, err := listed(ctx, client, pattern)
		if err != nil {
			return err
		}
		now := map[string]lockState{}
		for _, s := range states {
			now[s.Name] = s
			if old, known := before[s.Name]; !known {
				in.change("held", s)
			} else if old.owners() != s.owners() {
				in.change("changed", s)
			}
			delete(before, s.Name)
		}
		for _, s := range before {
			in.change("free", s)
		}
		before = now
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// owners returns the owners of a lock in a text.
func (s lockState) owners() (text string) {
	for _, h := range s.Holders {
		text += h.Owner + "\n"
	}
	return text
}

// change prints a change of a lock.
func (in *invocation) change(what string, s lockState) {
	at := time.Now().UTC().Format(time.RFC3339)
	if in.json() {
		owners := []string{}
		for _, h := range s.Holders {
			owners = append(owners, h.Owner)
		}
		printJSON(os.Stdout, map[string]any{"time": at, "event": what, "name": s.Name, "kind": s.Kind, "owners": owners})
		return
	}
	for _, h := range s.Holders {
		fmt.Printf("%s  %-7s  %s  %s  %s\n", at, what, s.Name, s.Kind, h.Owner)
	}
}
