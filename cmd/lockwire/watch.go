package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func watchCommand() *command {
	return &command{
		name:  "watch",
		args:  "[GLOB] [flags]",
		short: "show locks being taken and released",
		long: `
Shows a line for each lock that is acquired, released, forced or expired until a signal ends it: the locks with names that
match GLOB, or all. The first lines are the locks held at the beginning.

The server must publish events of keys: redis-cli CONFIG SET notify-keyspace-events Kg$hxe, on each node of a cluster. Where
it does not, the command says so and compares what lockwire list finds once in --every: then it does not see what
happens in between, and a lock that ends in any way is released.

A line of JSON has the event (held, acquired, released, forced, expired; missed when events were lost), name, kind and owner.
Kind and owner are "" if unknown.`,
		examples: []example{
			{"for a second, as lines of JSON", `timeout 1 lockwire watch 'orders*' -o json`, 124},
		},
		most: 1,
		define: func(flags *flag.FlagSet) action {
			every := flags.Duration("every", time.Second, "`DURATION` between two looks without events")
			return func(ctx context.Context, in *invocation) error { return watch(ctx, in, *every) }
		},
	}
}

func watch(ctx context.Context, in *invocation, every time.Duration) error {
	if every < 10*time.Millisecond {
		return usageError("--every must be 10ms or more")
	}
	pattern := in.first("*")
	client, err := in.open(ctx, lock.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	var held []lock.Event
	began := false
	for ev, err := range client.Watch(ctx, pattern) {
		reply, refused := errors.AsType[resp.Error](err)
		switch {
		case refused && !began:
			return in.poll(ctx, client, pattern, every, reply)
		case err != nil:
			return because(ctx, err)
		case ev.What == lock.EventWatching && ev.Err != nil:
			return in.poll(ctx, client, pattern, every, ev.Err)
		case ev.What == lock.EventWatching:
			began = true
			for _, ev := range held {
				in.printEvent(ev)
			}
			held = nil
		case !began:
			held = append(held, ev)
		default:
			in.printEvent(ev)
		}
		if in.out.err != nil {
			return in.out.err
		}
	}
	return context.Cause(ctx)
}

// poll compares the held locks once in every.
func (in *invocation) poll(ctx context.Context, client *lockwire.Client, pattern string, every time.Duration, why error) error {
	(&notices{in}).Warn(fmt.Sprintf("looking every %v instead", every), "error", why)
	again := time.NewTicker(every)
	defer again.Stop()
	before, what := map[lock.Event]bool{}, lock.EventHeld
	for {
		states, err := listed(ctx, client, pattern)
		if err != nil {
			return err
		}
		now := map[lock.Event]bool{}
		for _, s := range states {
			for _, h := range s.Holders {
				now[lock.Event{Name: s.Name, Shape: lock.Shape(s.Kind), Owner: h.Owner}] = true
			}
		}
		in.differ(lock.EventReleased, before, now)
		in.differ(what, now, before)
		if in.out.err != nil {
			return in.out.err
		}
		before, what = now, lock.EventAcquired
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// differ prints what is in one set and not in the other.
func (in *invocation) differ(what lock.EventKind, these, those map[lock.Event]bool) {
	names := func(a, b lock.Event) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner)) }
	for _, ev := range slices.SortedFunc(maps.Keys(these), names) {
		if !those[ev] {
			ev.What, ev.At = what, time.Now()
			in.printEvent(ev)
		}
	}
}

// printEvent prints a line.
func (in *invocation) printEvent(ev lock.Event) {
	at := ev.At.UTC().Format(time.RFC3339Nano)
	if in.json() {
		line := map[string]any{"time": at, "event": ev.What}
		if ev.What == lock.EventMissed {
			line["missed"] = ev.Missed
		} else {
			line["name"], line["kind"], line["owner"] = ev.Name, ev.Shape, ev.Owner
		}
		printJSON(in.out, line)
		return
	}
	text := fmt.Sprintf("%s  %-8s  %s  %s  %s", ev.At.UTC().Format("2006-01-02T15:04:05.000Z"), ev.What, ev.Name, ev.Shape, ev.Owner)
	if ev.What == lock.EventMissed {
		text += fmt.Sprintf("%d messages", ev.Missed)
		if ev.Err != nil {
			text += ": " + ev.Err.Error()
		}
	}
	fmt.Fprintln(in.out, printable(strings.TrimRight(text, " ")))
}
