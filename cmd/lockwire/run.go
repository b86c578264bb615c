package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
)

func runCommand() *command {
	return &command{
		name:  "run",
		args:  "NAME [flags] -- PROGRAM [ARGUMENT...]",
		short: "run a program while holding a lock",
		long: `
Waits for the lock NAME, runs PROGRAM while holding the lock, and releases the lock after PROGRAM has ended. The exit
code is that of PROGRAM, or 128 + n if the signal n ended it. Processes that PROGRAM leaves behind go on without the lock.

The lock is renewed while PROGRAM runs. If that fails, or the lock is taken away, the processes of PROGRAM get the
signal TERM and, if they are still running shortly before the end of the lease, KILL; the exit code is then 76, as after
--at-most. The signals TERM, INT, HUP, QUIT, USR1 and USR2 are passed on to PROGRAM and its processes; HUP under nohup, and
INT where a shell starts this process to ignore it, are ignored by both. If this process itself is killed, the lock stays
until its lease ends; on Linux, PROGRAM is killed at the same time, but not the processes it has started.

With --at-least, the lock stays taken for a while after the end of a short PROGRAM, so that a schedule runs it once
although the clocks of machines differ. This process does not wait for that, except with the kinds fair, read, write and
permit: there a signal ends the wait, and the lock stays until its lease ends.

PROGRAM finds LOCKWIRE_NAME, LOCKWIRE_KIND, LOCKWIRE_OWNER and, of the kind fenced, LOCKWIRE_TOKEN in its environment.
Each holder's token is greater than all before it: a resource that refuses smaller tokens is safe from late writers.`,
		examples: []example{
			{"wait for the lock, then run", `lockwire run nightly -- echo working`, 0},
			{"give up at once if another process has the lock (exit code 75)", `lockwire run orders -n -- echo working`, codeNotAcquired},
			{"wait for five seconds at most", `lockwire run nightly --wait 5s -- echo working`, 0},
			{"for two hours at most, then TERM and KILL (exit code 76)", `lockwire run nightly --at-most 2h -- echo working`, 0},
			{"once for each firing of a schedule, on all machines", `lockwire run hourly -n --at-least 200ms -- echo working`, 0},
			{"at most three at once, on all machines", `lockwire run import --kind permit --permits 3 -- echo importing`, 0},
			{"the fencing token", `lockwire run nightly -- sh -c 'echo "token $LOCKWIRE_TOKEN"'`, 0},
			{"a long shutdown: TERM 20 seconds before the lease would end", `lockwire run etl --lease 2m --stop-before 20s -- echo done`, 0},
		},
		least: 1, most: 1, program: true,
		define: func(flags *flag.FlagSet) action {
			h := &hold{}
			h.define(flags)
			return h.run
		},
	}
}

// hold is how a lock is taken and held for a program.
type hold struct {
	now        bool
	wait       time.Duration
	lease      time.Duration
	atMost     time.Duration
	atLeast    time.Duration
	stopBefore time.Duration
	kind       string
	permits    int
}

const forever = time.Duration(-1)

// patience defines a flag for the longest time of a wait. Without the flag d is forever.
func patience(flags *flag.FlagSet, d *time.Duration, name, usage string) {
	*d = forever
	flags.Func(name, usage, func(text string) (err error) {
		if *d, err = time.ParseDuration(text); err != nil || *d < 0 {
			return errors.New("not a duration such as 5s")
		}
		return nil
	})
}

func (h *hold) define(flags *flag.FlagSet) {
	flags.BoolVar(&h.now, "n", false, "do not wait for the lock; short for --wait 0s")
	patience(flags, &h.wait, "wait", "longest `DURATION` of the wait for the lock, such as 5s or 10m; default: without end")
	flags.DurationVar(&h.atMost, "at-most", 0, "longest `DURATION` of holding the lock; PROGRAM gets TERM before; default: no limit")
	h.defineLease(flags)
	flags.DurationVar(&h.atLeast, "at-least", 0, "shortest `DURATION` of holding the lock, also after the end of PROGRAM")
	flags.StringVar(&h.kind, "kind", "fenced", "`KIND` of the lock: fenced, reentrant, fair, read, write, spin, plain or permit")
	flags.Func("permits", "of the kind permit: `N` programs at once, if the semaphore is not set up yet", func(text string) (err error) {
		if h.permits, err = strconv.Atoi(text); err != nil || h.permits < 1 {
			return errors.New("not a number of 1 or more")
		}
		return nil
	})
}

func (h *hold) defineLease(flags *flag.FlagSet) {
	flags.DurationVar(&h.lease, "lease", 30*time.Second, "`DURATION` for which the lock stays taken after the death of this process")
	flags.DurationVar(&h.stopBefore, "stop-before", 0,
		"`DURATION` before the end of the lease at which PROGRAM gets TERM; default: a sixth of the lease, at most 5s")
}

// check checks the flags, and sets the defaults that depend on other flags.
func (h *hold) check() error {
	if h.now && h.wait > 0 {
		return usageError("-n and --wait exclude each other")
	}
	if h.now {
		h.wait = 0
	}
	if h.stopBefore == 0 {
		h.stopBefore = min(h.lease/6, 5*time.Second)
		if h.atMost > 0 {
			h.stopBefore = min(h.stopBefore, h.atMost/2)
		}
	}
	switch {
	case h.lease < time.Second:
		return usageError("--lease must be a second or more")
	case h.stopBefore < 0 || h.stopBefore > h.lease*2/5:
		return usageError("--stop-before must not be more than two fifths of --lease")
	case h.atMost < 0 || h.atMost > 0 && h.atMost <= h.stopBefore:
		return usageError("--at-most must be more than --stop-before")
	case h.atLeast < 0 || h.atMost > 0 && h.atLeast > h.atMost-h.stopBefore:
		return usageError("--at-least must not be more than --at-most without --stop-before")
	case h.permits > 0 && h.kind != "permit":
		return usageError("--permits is for --kind permit")
	}
	return checkKind(h.kind)
}

// begin checks the flags, finds the program, and opens the client, which the caller closes.
func (h *hold) begin(ctx context.Context, in *invocation) (program string, client *lockwire.Client, err error) {
	if err := h.check(); err != nil {
		return "", nil, err
	}
	if program, err = exec.LookPath(in.program[0]); err != nil {
		return "", nil, notStarted(err)
	}
	client, err = in.open(ctx, lock.Config{Lease: h.lease})
	return program, client, err
}

func (h *hold) run(ctx context.Context, in *invocation) error {
	program, client, err := h.begin(ctx, in)
	if err != nil {
		return err
	}
	defer client.Close()
	lease, err := h.acquire(ctx, client, in.args[0])
	if err != nil {
		return err
	}
	begin := time.Now()
	in.event("acquired", lease, nil)
	work, cancel := lease.Context(context.Background())
	defer cancel()
	code, err := h.supervise(work, in, lease, program)
	if err == nil && !h.outlasts() && !h.linger(ctx, work, begin) {
		in.event("kept until its lease ends", lease, nil)
		return endedWith(code)
	}
	return h.end(in, lease, code, err)
}

// outlasts reports whether a lock of the kind can outlast its release, by lock.AtLeast.
func (h *hold) outlasts() bool {
	return !slices.Contains([]string{"fair", "read", "write", "permit"}, h.kind)
}

// linger waits until the lock has been held for atLeast. It reports false if a signal or a loss has ended the wait: then the
// lock is not to be released.
func (h *hold) linger(ctx, work context.Context, begin time.Time) bool {
	left := h.atLeast - time.Since(begin)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-work.Done():
	}
	return false
}

// supervise runs the program until it ends, or work does.
func (h *hold) supervise(work context.Context, in *invocation, lease *lock.Lease, program string) (code int, err error) {
	runtime.LockOSThread() // the program dies with the thread that has started it
	defer runtime.UnlockOSThread()
	s := &supervisor{hold: h, in: in, lease: lease}
	return s.run(work, &exec.Cmd{
		Path: program, Args: in.program, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: h.environment(in.args[0], lease),
	})
}

// end releases the lock, and returns the result of the whole.
func (h *hold) end(in *invocation, lease *lock.Lease, code int, err error) error {
	released := lease.Unlock(context.Background())
	switch {
	case errors.Is(err, lock.ErrLost):
		return &exitError{codeLost, fmt.Errorf("%s: the program was ended: %w", printable(in.args[0]), h.why(err))}
	case err != nil:
		return err
	case errors.Is(released, lock.ErrNotHeld):
		return &exitError{codeLost, fmt.Errorf("%s: the lock was lost while the program ran: %w", printable(in.args[0]), released)}
	case released != nil:
		in.event("the release is not confirmed", lease, released)
	default:
		in.event("released", lease, nil)
	}
	return endedWith(code)
}

// why returns the reason for which a program has to end, in the words of the command and without the name of the lock.
func (h *hold) why(err error) error {
	lost, ok := errors.AsType[*lock.LostError](err)
	if !ok {
		return err
	}
	text := "the lock is lost: " + lost.Reason.String()
	switch {
	case lost.Reason == lock.HeldTooLong, lost.Reason == lock.Ending && h.atMost > 0 && lost.Age >= h.atMost-h.stopBefore:
		return fmt.Errorf("it may have the lock for %v, by --at-most", h.atMost)
	case lost.Reason == lock.Ending:
		text = "the lease was not renewed in time"
	}
	if lost.Err != nil {
		return fmt.Errorf("%s: %w", text, lost.Err)
	}
	return errors.New(text)
}

// endedWith is the result of a command with the given exit code, and without a text.
func endedWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// take takes the lock, after the setup of its permits if their number is known.
func (h *hold) take(ctx context.Context, client *lockwire.Client, name string) (*lock.Lease, error) {
	if h.permits > 0 {
		if _, err := client.PermitSemaphore(name).TrySetPermits(ctx, h.permits); err != nil {
			return nil, err
		}
	}
	l := lockerOf(client, h.kind, name)
	opts := []lock.Option{lock.StopBefore(h.stopBefore), lock.AtMost(h.atMost)}
	if h.outlasts() {
		opts = append(opts, lock.AtLeast(h.atLeast))
	}
	switch h.wait {
	case 0:
		return l.TryLock(ctx, opts...)
	case forever:
		return l.Lock(ctx, opts...)
	}
	limited, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	return l.Lock(limited, opts...)
}

// acquire is take with the errors in the command's words.
func (h *hold) acquire(ctx context.Context, client *lockwire.Client, name string) (*lock.Lease, error) {
	lease, err := h.take(ctx, client, name)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return lease, nil
	case cause != nil:
		return nil, cause
	case errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrNotReplicated):
		return nil, &exitError{codeNotAcquired, fmt.Errorf("%s: not acquired%s", printable(name), holders(ctx, client, name))}
	case errors.Is(err, lock.ErrNotSet):
		return nil, usageError("%s: no permits have been set: set their number with --permits", printable(name))
	case errors.Is(err, lock.ErrLost):
		return nil, &exitError{codeNotAcquired, err}
	case errors.Is(err, lock.ErrWrongType):
		return nil, &exitError{codeFailed, fmt.Errorf("%s: not a lock of the kind %s: lockwire status shows what the name has, and --kind sets the kind", printable(name), h.kind)}
	}
	return nil, err
}

// holders names the first holder of a lock and its process, if the server answers within a second.
func holders(ctx context.Context, client *lockwire.Client, name string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	seen, err := client.Inspect(ctx, name)
	if err != nil || len(seen.Info.Holders) == 0 {
		return ""
	}
	s := inspectedState(seen)
	first := s.Holders[0]
	text := fmt.Sprintf(": held by %s, time left %s%s", first.Owner, remaining(first.Remaining), s.processOf(first.Owner))
	if n := len(s.Holders) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// environment returns the environment of the program, with the lock, and without the token of a command that runs this one.
func (h *hold) environment(name string, lease *lock.Lease) []string {
	const token = "LOCKWIRE_TOKEN="
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, token) })
	env = append(env, "LOCKWIRE_NAME="+name, "LOCKWIRE_KIND="+h.kind, "LOCKWIRE_OWNER="+lease.Owner())
	if n := lease.Token(); n != 0 {
		env = append(env, token+strconv.FormatInt(n, 10))
	}
	return env
}

// notStarted is the error of a failed start, with the exit code of a shell.
func notStarted(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &exitError{codeNotFound, err}
	}
	return &exitError{codeNotExecutable, err}
}

// event reports an event on standard error: each event as JSON, but only failures as text.
func (in *invocation) event(what string, lease *lock.Lease, err error) {
	name := in.args[0]
	switch {
	case in.json():
		fields := map[string]any{"event": what, "name": name, "owner": lease.Owner(), "token": lease.Token()}
		if err != nil {
			fields["error"] = err.Error()
		}
		printJSON(os.Stderr, fields)
	case err != nil:
		fmt.Fprintf(os.Stderr, "lockwire: %s\n", printable(fmt.Sprintf("%s: %s: %v", name, what, err)))
	}
}
