// Demo shows a lock at work: several processes contend for a lock that guards a counter, a process is killed while holding the
// lock, and a survivor takes over at the end of the lease. The demo needs no Redis, because it has a server inside; with -redis
// it runs on a real server and removes its keys.
//
// The demo watches the server and the processes' reports, and checks at the end: no two processes held the lock at once, no
// increment of the counter got lost, and the lock of the dead process was given away neither before the end of its lease nor
// long after. The exit status is 0 only if all checks pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	if isWorker() {
		os.Exit(workerMain(os.Stdin, os.Stdout))
	}
	os.Exit(demoMain(os.Args[1:], os.Stdout, os.Stderr))
}

// interrupted is the exit status of a run ended by Ctrl-C, as in shells.
const interrupted = 130

func demoMain(args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	err = run(ctx, s, newScreen(stdout))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotWell):
		return 1 // the summary has named the fault
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "demo: interrupted; the workers have ended")
		return interrupted
	}
	fmt.Fprintln(stderr, "demo:", err)
	return 1
}

// settings are the choices about a run.
type settings struct {
	redis   string // URL of a server; "" is a server inside this process
	workers int
	lease   time.Duration
	length  time.Duration // of the whole run, about
}

// longest is the longest run on offer, and limit the time after which any run is given up.
const longest, limit = 22 * time.Second, 26 * time.Second

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.redis, "redis", "", "`URL` of a Redis or Valkey server (default: one inside the demo)")
	flags.IntVar(&s.workers, "workers", 4, "processes that contend for the lock, 2 to 9")
	flags.DurationVar(&s.lease, "lease", 3*time.Second, "lease of the lock, 500ms or more")
	flags.DurationVar(&s.length, "for", 18*time.Second, "length of the run: three leases or more, 22s at most")
	err := flags.Parse(args)
	if err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.workers < 2 || s.workers > 9:
		err = errors.New("-workers is not between 2 and 9")
	case s.lease < 500*time.Millisecond:
		err = errors.New("-lease is shorter than 500ms")
	case s.length < 3*s.lease || s.length > longest:
		err = fmt.Errorf("-for is not between three leases and %v", longest)
	}
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
	}
	return s, err
}

// newScreen is a board where it can be redrawn in place, and plain lines elsewhere.
func newScreen(w io.Writer) screen {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return newBoard(f, os.Getenv("NO_COLOR") == "")
	}
	return newLines(w)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && runtime.GOOS != "windows" &&
		os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
}
