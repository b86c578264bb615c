package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

func leaderRunCommand() *command {
	return &command{
		name:  "leader run",
		args:  "NAME [flags] -- PROGRAM [ARGUMENT...]",
		short: "run a program in one process at a time, and again after each loss",
		long: `
Waits until this process leads, and runs PROGRAM. If the leadership is lost, PROGRAM is ended as by lockwire run, and the
command waits until this process leads again. It ends with PROGRAM, and with the exit code of PROGRAM.

PROGRAM finds LOCKWIRE_NAME, LOCKWIRE_KIND, LOCKWIRE_OWNER and LOCKWIRE_TOKEN in its environment. The leader holds the
fenced lock NAME, so lockwire status, list and release work as for other locks.`,
		examples: []example{
			{"one scheduler at a time, on all machines", `lockwire leader run scheduler --address 10.0.0.7:8080 -- echo leading`, 0},
		},
		least: 1, most: 1, program: true,
		define: func(flags *flag.FlagSet) action {
			h, address := &hold{kind: "fenced"}, ""
			h.defineLease(flags)
			flags.StringVar(&address, "address", "", "`TEXT` for others, such as the address at which this leader serves")
			return func(ctx context.Context, in *invocation) error { return h.lead(ctx, in, address) }
		},
	}
}

// lead runs the program whenever this process leads.
func (h *hold) lead(ctx context.Context, in *invocation, address string) error {
	program, client, err := h.begin(ctx, in)
	if err != nil {
		return err
	}
	defer client.Close()
	var last *lock.Lease
	ended, code := false, 0 // the program has ended by itself
	cfg := leader.Config{Address: address, StopBefore: h.stopBefore, Logger: &notices{in}}
	err = leader.Run(ctx, client.Client, in.args[0], cfg, func(work context.Context) (err error) {
		last = lock.LeaseFrom(work)
		in.event("leading", last, nil)
		code, err = h.supervise(work, in, last, program)
		ended = err == nil
		return err
	})
	switch cause := context.Cause(ctx); {
	case errors.Is(err, lock.ErrLost), errors.Is(err, lock.ErrNotHeld):
		return &exitError{codeLost, err}
	case !ended:
		return cmp.Or(cause, err)
	case errors.Is(err, lock.ErrUncertain):
		in.event("the release is not confirmed", last, err)
	}
	return endedWith(code)
}

func leaderShowCommand() *command {
	return &command{
		name:  "leader show",
		args:  "NAME [flags]",
		short: "show who leads",
		long: `
Shows the leader, its address, its fencing token and since when it leads. The exit code is 75 if nobody leads.`,
		examples: []example{
			{"who leads", `lockwire leader show scheduler`, codeNotAcquired},
		},
		least: 1, most: 1,
		run: connected(leaderShow),
	}
}

func leaderShow(ctx context.Context, in *invocation, client *lockwire.Client) error {
	l, err := leader.Observe(ctx, client.Client, in.args[0])
	if err != nil {
		return because(ctx, err)
	}
	if l.Owner == "" {
		return &exitError{codeNotAcquired, fmt.Errorf("%s: nobody leads", printable(in.args[0]))}
	}
	since := ""
	if !l.Since.IsZero() {
		since = l.Since.UTC().Format(time.RFC3339)
	}
	if in.json() {
		printJSON(in.out, map[string]any{
			"name": in.args[0], "owner": l.Owner, "address": l.Address, "token": l.Token, "since": since,
			"remaining_ms": milliseconds(l.Remaining),
		})
		return nil
	}
	printTable(in.out, "NAME LEADER ADDRESS SINCE LEFT TOKEN", [][]string{{
		in.args[0], l.Owner, orDash(l.Address), orDash(since), left(l.Remaining), strconv.FormatInt(l.Token, 10),
	}})
	return nil
}

// notices is a Logger to standard error.
type notices struct{ in *invocation }

func (n *notices) Warn(msg string, args ...any) {
	if n.in.json() {
		fields := map[string]any{"warning": msg}
		for i := 0; i+1 < len(args); i += 2 {
			fields[fmt.Sprint(args[i])] = fmt.Sprint(args[i+1])
		}
		printJSON(os.Stderr, fields)
		return
	}
	for i := 0; i+1 < len(args); i += 2 {
		if args[i+1] != nil {
			msg += fmt.Sprintf(" %v=%v", args[i], args[i+1])
		}
	}
	fmt.Fprintln(os.Stderr, "lockwire:", msg)
}
