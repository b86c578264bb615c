package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
)

func statusCommand() *command {
	return &command{
		name:  "status",
		args:  "NAME... [flags]",
		short: "show who holds a lock, and who waits",
		long: `
Shows the locks of the given names, of any kind: the owners, the processes behind them as the server sees them, the time
left until the lease ends, the queue of a fair lock, and how many clients listen for the release. The processes of
Redisson have no names. With -o json it prints one line for each lock.

With --latches it also scans all keys of the server for the latches that requests about the locks have left.`,
		examples: []example{
			{"who has it", `lockwire status orders`, 0},
			{"the owner, for a script", `lockwire status orders -o json | grep -o '"owner":"[^"]*"'`, 0},
		},
		least: 1, most: 1000,
		define: func(flags *flag.FlagSet) action {
			latches := flags.Bool("latches", false, "show the keys that keep requests from taking effect twice, too")
			return connected(func(ctx context.Context, in *invocation, client *lockwire.Client) error {
				return status(ctx, in, client, *latches)
			})
		},
	}
}

func status(ctx context.Context, in *invocation, client *lockwire.Client, latches bool) error {
	for i, name := range in.args {
		seen, err := client.Inspect(ctx, name)
		if err != nil {
			return because(ctx, err)
		}
		s := inspectedState(seen)
		if latches {
			left, err := client.Latches(ctx, name)
			if err != nil {
				return because(ctx, err)
			}
			for _, l := range left {
				s.Latches = append(s.Latches, latchState{l.Key, l.Remaining.Milliseconds()})
			}
		}
		if in.json() {
			printJSON(in.out, s)
			continue
		}
		if i > 0 {
			fmt.Fprintln(in.out)
		}
		s.describe(in.out)
	}
	return nil
}

// inspectedState returns the state of a lock with the processes behind it.
func inspectedState(seen lock.Inspection) lockState {
	s := stateOf(lock.Listed{Name: seen.Name, Shape: seen.Shape, Info: seen.Info})
	s.Listening = max(seen.Listening, 0)
	for _, c := range seen.Clients {
		s.Processes = append(s.Processes, processState{c.ID, c.Connected, c.Name, c.Addr, c.Age.Milliseconds()})
	}
	if seen.ClientsErr != nil {
		s.ProcessesError = seen.ClientsErr.Error()
	}
	return s
}

// describe prints the state of one lock for people.
func (s lockState) describe(w io.Writer) {
	held := "free"
	switch {
	case s.Held || len(s.Holders) > 0:
		held = "held"
	case s.Kind == string(lock.ShapeOther):
		held = "no lock: the key holds something else"
	case s.Kind == string(lock.ShapeNumber):
		held = strconv.Itoa(s.Permits.Free)
	}
	fmt.Fprintf(w, "%s: %s\n", printable(s.Name), held)
	field := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-10s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	if s.Kind == string(lock.ShapeNumber) {
		field("kind", "number: the permits left of a Semaphore, or the count of a CountDownLatch")
	} else if s.Kind != "" {
		field("kind", "%s", strings.TrimSpace(s.Kind+" "+s.Mode))
	}
	if s.Token != 0 {
		field("token", "%d", s.Token)
	}
	if s.Permits != nil && s.Kind != string(lock.ShapeNumber) {
		field("permits", "%d of %d free", s.Permits.Free, s.Permits.Free+s.Permits.Taken)
	}
	for _, h := range s.Holders {
		field("holder", "%s, holds %d, time left %s%s", h.Owner, h.Holds, remaining(h.Remaining), s.processOf(h.Owner))
	}
	for i, w := range s.Queue {
		field("queue", "%d. %s%s", i+1, w.Owner, s.processOf(w.Owner))
	}
	if s.Listening > 0 {
		field("listening", "%d clients", s.Listening)
	}
	for _, l := range s.Latches {
		field("latch", "%s, for %s", l.Key, remaining(l.Remaining))
	}
	if s.ProcessesError != "" {
		field("processes", "unknown: %s", s.ProcessesError)
	}
}

// processOf describes the process behind an owner.
func (s lockState) processOf(owner string) string {
	for _, p := range s.Processes {
		if !strings.HasPrefix(owner, p.ID+":") {
			continue
		}
		if !p.Connected {
			return ", not connected"
		}
		return fmt.Sprintf(", process %s at %s, connected for %s", p.Name, p.Addr, brief(time.Duration(p.Age)*time.Millisecond))
	}
	return ""
}
