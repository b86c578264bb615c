//go:build unix

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/redistest"
)

func TestServerRun(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	notExecutable := write(t, "plain", "text", 0o644)
	noProgram := write(t, "broken", "#!/no/such/interpreter\n", 0o755)
	tests := []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"the exit code of the program", []string{"job", "--", "sh", "-c", "exit 7"}, 7, "", ""},
		{"its signal", []string{"job", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, "", ""},
		{"its output", []string{"job", "--", "echo", "-n", "a  b", "--"}, 0, "a  b --", ""},
		{"its environment", []string{"--kind", "fair", "job", "--", "sh", "-c", "echo $LOCKWIRE_NAME $LOCKWIRE_KIND $LOCKWIRE_TOKEN."},
			0, "job fair .\n", ""},
		{"its own token, or none", []string{"outer", "--", "sh", "-c", `"$0" run --kind fair job -- sh -c 'echo $LOCKWIRE_NAME $LOCKWIRE_TOKEN.'`,
			lockwireCommand(t, "").Path}, 0, "job .\n", ""},
		{"no program", []string{"job", "--", "no-such-program"}, 127, "", "no-such-program"},
		{"no file", []string{"job", "--", "/no/such/file"}, 127, "", "/no/such/file"},
		{"not executable", []string{"job", "--", notExecutable}, 126, "", "permission denied"},
		{"no interpreter", []string{"job", "--", noProgram}, 127, "", "no such file"},
		{"a directory", []string{"job", "--", "/"}, 126, "", "/"},
		{"flags anywhere", []string{"--wait", "1s", "job", "--lease=2s", "--", "true"}, 0, "", ""},
		{"events", []string{"job", "-o", "json", "--", "true"}, 0, "", `"event":"released"`},
		{"no --", []string{"job", "true"}, 64, "", "the program is missing"},
		{"two names", []string{"job", "other", "--", "true"}, 64, "", "too many arguments"},
		{"no name", []string{"--", "true"}, 64, "", "an argument is missing"},
		{"a name that cannot be", []string{"a{b", "--", "true"}, 64, "", "a{b"},
		{"unknown flag", []string{"job", "--kinds", "fair", "--", "true"}, 64, "", "unknown flag --kinds: see lockwire help run"},
		{"unknown kind", []string{"job", "--kind", "x", "--", "true"}, 64, "", "--kind is one of"},
		{"a wait that is none", []string{"job", "-n", "--wait", "5s", "--", "true"}, 64, "", "exclude each other"},
		{"a wait without a unit", []string{"job", "--wait", "5", "--", "true"}, 64, "", "such as 5s"},
		{"a margin as long as the lease", []string{"job", "--lease", "2s", "--stop-before", "2s", "--", "true"}, 64, "", "--stop-before"},
		{"a limit within the margin", []string{"job", "--at-most", "2s", "--stop-before", "3s", "--", "true"}, 64, "", "--at-most"},
		{"more than the limit", []string{"job", "--at-most", "2s", "--at-least", "3s", "--", "true"}, 64, "", "--at-least"},
		{"permits that nobody has set", []string{"job", "--kind", "permit", "--", "true"}, 64, "", "set their number with --permits"},
		{"permits without their kind", []string{"job", "--permits", "2", "--", "true"}, 64, "", "--kind permit"},
		{"no permits", []string{"job", "--kind", "permit", "--permits", "0", "--", "true"}, 64, "", "not a number of 1 or more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := do(t, s.URL(), append([]string{"run"}, tt.args...)...)
			r.check(t, tt.code, tt.stdout, "!"+tt.stderr)
			if isHeld(s, "job") {
				t.Error("the lock is still held")
			}
		})
	}
}

func TestServerRunKinds(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	for _, kind := range kinds {
		name := "job-" + kind
		args := []string{"run", name, "--kind", kind}
		if kind == "permit" {
			args = append(args, "--permits", "1")
		}
		holder := startHeld(t, s.URL(), append(args, "--", "sh", "-c", "echo ready; cat")...)
		holder.line()
		code := codeNotAcquired
		if kind == "read" {
			code = 0
		}
		do(t, s.URL(), append(args, "-n", "--", "true")...).check(t, code)
		holder.release()
		holder.end().check(t, 0)
		do(t, s.URL(), append(args, "-n", "--", "true")...).check(t, 0)
	}
}

// A name that has something else than a lock of the kind.
func TestServerRunWrongKind(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("SET", "job", "5")
	do(t, s.URL(), "run", "job", "--", "echo", "worked").check(t, 1, "", "!job: not a lock of the kind fenced: lockwire status shows ")
	s.Do("RPUSH", "list", "5")
	do(t, s.URL(), "run", "list", "--kind", "permit", "--permits", "2", "--", "echo", "worked").
		check(t, 1, "", "!list: not a lock of the kind permit: lockwire status shows ")
	do(t, s.URL(), "leader", "run", "job", "--", "echo", "leads").check(t, 1, "", `!lock "job": the key holds something else: `)
}

func TestServerRunTokenGrows(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	last := int64(0)
	for range 3 {
		r := do(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $LOCKWIRE_TOKEN")
		token, err := strconv.ParseInt(strings.TrimSpace(r.stdout), 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %q after %d", r.stdout, last)
		}
		last = token
	}
}

func TestServerRunNotAcquired(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $LOCKWIRE_OWNER; cat")
	owner := holder.line()
	do(t, s.URL(), "run", "job", "-n", "--", "echo", "worked").check(t, 75, "", "!job: not acquired: held by "+owner)
	do(t, s.URL(), "run", "job", "--wait", "50ms", "--", "echo", "worked").check(t, 75, "", "!held by "+owner)
	r := do(t, s.URL(), "run", "job", "-n", "-o", "json", "--", "echo", "worked")
	if all := decode(t, r.stderr); r.stdout != "" || len(all) != 1 || all[0]["code"] != 75.0 {
		t.Errorf("%+v", r)
	}
	waiter := startJob(t, s.URL(), "run", "job", "--", "echo", "worked")
	await(t, "the waiter waits", func() bool { return subscribers(s) > 0 })
	holder.release()
	holder.end().check(t, 0)
	waiter.end().check(t, 0, "worked\n")
}

// A signal that arrives while the command waits ends the wait, and nothing is run.
func TestServerRunSignalWhileWaiting(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo ready; cat")
	holder.line()
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		await(t, "the last waiter has left", func() bool { return subscribers(s) == 0 })
		waiter := startJob(t, s.URL(), "run", "job", "--", "echo", "worked")
		await(t, "the waiter waits", func() bool { return subscribers(s) > 0 })
		waiter.signal(sig)
		if r := waiter.end(); r.code != code || r.stdout != "" {
			t.Errorf("after %v: %+v", sig, r)
		}
	}
	holder.release()
	holder.end().check(t, 0)
}

// All processes of the program get the signals, and the lock is held until the program has ended.
func TestServerRunPassesSignals(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	loop := `echo ready; while :; do sleep 0.01; done`
	for name, sig := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		script, want := "trap 'echo child; cat; exit 3' "+name+"; "+loop, "child"
		if name == "TERM" || name == "HUP" { // a shell makes its children in the background ignore INT and QUIT
			script = `trap 'wait; echo child; cat; exit 3' SIG; sh -c "trap 'echo grandchild; exit 0' SIG; ` + loop + `" & wait; wait`
			script, want = strings.ReplaceAll(script, "SIG", name), "grandchild child"
		}
		j := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", script)
		j.line()
		j.signal(sig)
		for _, word := range strings.Fields(want) {
			if line := j.line(); line != word {
				t.Errorf("%s: %q, want %q", name, line, word)
			}
		}
		if !isHeld(s, "job") {
			t.Errorf("%s: the lock is released before the program has ended", name)
		}
		j.release()
		j.end().check(t, 3)
	}
}

// nohup makes a command ignore HUP, and a shell makes a command in the background ignore INT. Then neither the command nor the
// program ends.
func TestServerRunIgnoredSignals(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	for name, sig := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			run := lockwireCommand(t, s.URL(), "run", "job", "--", "sh", "-c", "trap 'echo got TERM; exit 5' TERM; echo ready; while :; do read -r line; done")
			shell := lockwireCommand(t, s.URL(), append([]string{"-c", `trap "" ` + name + `; exec "$@"`, "sh"}, run.Args...)...)
			var err error
			if shell.Path, err = exec.LookPath("sh"); err != nil {
				t.Fatal(err)
			}
			j := &job{t: t, cmd: shell}
			if j.stdin, err = shell.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			j.start()
			j.line()
			j.signal(sig)
			j.signal(syscall.SIGTERM)
			j.end().check(t, 5, "got TERM")
		})
	}
}

// The lock is taken away: the program gets TERM, with all its processes, and the exit code tells.
func TestServerRunLost(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startJob(t, s.URL(), "run", "job", "--lease", "4s", "--stop-before", "1600ms", "--", "sh", "-c",
		`trap 'echo stopping; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	j.line()
	s.Do("DEL", "job")
	j.end().check(t, 76, "stopping\n", "!lost")
}

// A program that ignores TERM is killed with all its processes.
func TestServerRunLostKills(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startJob(t, s.URL(), "run", "job", "--lease", "1s", "--", "sh", "-c",
		`trap '' TERM; sh -c 'echo $$; while :; do sleep 0.01; done' & echo $$; wait`)
	first, second := j.line(), j.line()
	s.Do("DEL", "job")
	r := j.end()
	r.check(t, 76, "", "!lost")
	await(t, "both processes are gone", func() bool { return gone(t, first) && gone(t, second) })
}

// A program that ends by itself after its lock was lost has not worked under the lock.
func TestServerRunLostUnnoticed(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo ready; cat")
	j.line()
	s.Do("DEL", "job")
	j.release()
	j.end().check(t, 76, "", "!lost while the program ran")
}

// No renewal reaches the server: the program ends while its lease still lasts.
func TestServerRunUnreachable(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	p, err := faultproxy.New(s.Network(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	j := startHeld(t, "redis://"+p.Addr(), "run", "job", "--lease", "3s", "--stop-before", "1200ms", "--", "sh", "-c",
		`trap 'echo stopping; cat; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	j.line()
	p.Close()
	if line := j.line(); line != "stopping" {
		t.Errorf("%q", line)
	}
	if !isHeld(s, "job") {
		t.Error("the program was told to stop after its lease")
	}
	j.release()
	j.end().check(t, 76, "", "!job: the program has to end: the lease was not renewed in time: ", "!job: the program was ended: the lease was not renewed in time: ")
}

// A program that runs for too long gets TERM, while it still has the lock.
func TestServerRunAtMost(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startHeld(t, s.URL(), "run", "job", "--at-most", "3s", "--stop-before", "2s", "--", "sh", "-c",
		`trap 'echo stopping; cat; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	j.line()
	if line := j.line(); line != "stopping" {
		t.Errorf("%q", line)
	}
	if !isHeld(s, "job") {
		t.Error("the lock is free before the program has ended")
	}
	j.release()
	j.end().check(t, 76, "", "!lockwire run: job: the program was ended: it may have the lock for 3s, by --at-most")
	if isHeld(s, "job") {
		t.Error("the lock is not released")
	}
}

// The lock outlives a short program and the command.
func TestServerRunAtLeast(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	for _, kind := range []string{"fenced", "reentrant", "spin", "plain"} {
		do(t, s.URL(), "run", "job", "--kind", kind, "--at-least", "1h", "--", "sh", "-c", "exit 5").check(t, 5)
		if left, err := s.Do("PTTL", "job").Int(); err != nil || left < 50*60_000 || left > 60*60_000 {
			t.Errorf("%s: the lock stays for %d ms, want an hour: %v", kind, left, err)
		}
		do(t, s.URL(), "run", "job", "-n", "--kind", kind, "--", "true").check(t, 75)
		s.Do("DEL", "job")
	}
}

// Where the server cannot keep the lock, the command does. A signal ends the wait, and not the lock.
func TestServerRunAtLeastOfOtherKinds(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	begin := time.Now()
	do(t, s.URL(), "run", "job", "--kind", "fair", "--at-least", "300ms", "--", "sh", "-c", "exit 5").check(t, 5)
	if d := time.Since(begin); d < 300*time.Millisecond || isHeld(s, "job") {
		t.Errorf("the lock was held for less than %v, or is held", d)
	}
	j := startJob(t, s.URL(), "run", "job", "--kind", "fair", "--at-least", "1h", "--", "sh", "-c", "echo $$; exit 5")
	pid := j.line()
	await(t, "the program has ended", func() bool { return gone(t, pid) })
	do(t, s.URL(), "run", "job", "-n", "--", "true").check(t, 75)
	j.signal(syscall.SIGTERM)
	j.end().check(t, 5)
	do(t, s.URL(), "run", "job", "-n", "--", "true").check(t, 75)
}

// The program is killed by somebody else, or the command itself.
func TestServerRunKilled(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startJob(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $$; exec sleep 1000")
	pid, err := strconv.Atoi(j.line())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.end().check(t, 137)
	if isHeld(s, "job") {
		t.Error("the lock is still held")
	}

	j = startJob(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $$; exec sleep 1000")
	child := j.line()
	j.signal(syscall.SIGKILL)
	await(t, "the program is gone", func() bool { return gone(t, child) })
	j.end()
	if !isHeld(s, "job") {
		t.Error("the lock of a dead process is free before its lease has ended")
	}
}

// gone reports whether a process has ended. A zombie has, and only its parent still knows it.
func gone(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil && syscall.Kill(n, 0) != nil || strings.Contains(string(stat), ") Z ")
}

// subscribers returns the number of channels on which somebody waits for a lock. Holders have another one, from half a second on.
func subscribers(s *redistest.Server) int { return s.Do("PUBSUB", "CHANNELS", "redisson_*").Len() }
