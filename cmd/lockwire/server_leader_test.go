//go:build unix

package main

import (
	"syscall"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestServerLeader(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	do(t, s.URL(), "leader", "show", "job").check(t, 75, "", "!nobody leads")
	script := `trap 'echo stopping; exit 0' TERM; echo leading; while :; do sleep 0.01; done`
	first := startHeld(t, s.URL(), "leader", "run", "job", "--lease", "4s", "--stop-before", "1600ms", "--address", "here", "--", "sh", "-c", script)
	if line := first.line(); line != "leading" {
		t.Errorf("%q", line)
	}
	do(t, s.URL(), "leader", "show", "job").check(t, 0, "here")
	r := do(t, s.URL(), "leader", "show", "job", "-o", "json")
	if all := decode(t, r.stdout); len(all) != 1 || all[0]["address"] != "here" || all[0]["token"] == 0.0 {
		t.Errorf("%+v", r)
	}
	// After a loss the program ends, and another begins.
	s.Do("DEL", "job")
	if lines := first.line() + " " + first.line(); lines != "stopping leading" {
		t.Errorf("after a loss: %q", lines)
	}
	second := startJob(t, s.URL(), "leader", "run", "job", "--", "sh", "-c", "echo second; exit 4")
	await(t, "the second waits", func() bool { return subscribers(s) > 0 })
	first.signal(syscall.SIGTERM)
	first.end().check(t, 0, "stopping")
	second.end().check(t, 4, "second\n")
	if isHeld(s, "job") {
		t.Error("the lock is still held")
	}
}

// A signal while the program has to end for another reason ends the command too, without another campaign.
func TestServerLeaderSignalWhileStopping(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	j := startHeld(t, s.URL(), "leader", "run", "job", "--lease", "4s", "--stop-before", "1600ms", "--", "sh", "-c",
		`trap 'trap "" TERM; echo stopping; cat; exit 0' TERM; echo leading; while :; do sleep 0.01; done`)
	j.line()
	s.Do("DEL", "job")
	j.line()
	j.signal(syscall.SIGTERM)
	j.release()
	if r := j.end(); r.code == 0 || r.stdout != "" {
		t.Errorf("%+v, want an error and no further campaign", r)
	}
}

// The command ends with the exit code of the program, also after a signal, and if nobody confirms the release.
func TestServerLeaderExitCode(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	begin := func(script string) *job {
		j := startHeld(t, s.URL(), "leader", "run", "job", "--", "sh", "-c", script)
		j.line()
		return j
	}
	for script, code := range map[string]int{
		`trap 'exit 3' TERM; echo leading; while :; do sleep 0.01; done`: 3,
		`echo leading; exec cat`: 128 + int(syscall.SIGTERM),
	} {
		j := begin(script)
		j.signal(syscall.SIGTERM)
		j.end().check(t, code, "")
	}
	for script, code := range map[string]int{`echo leading; cat`: 0, `echo leading; cat; exit 5`: 5} {
		j := begin(script)
		s.Do("ACL", "SETUSER", "default", "-eval", "-evalsha")
		j.release()
		j.end().check(t, code, "", "!not confirmed")
		s.Do("ACL", "SETUSER", "default", "+eval", "+evalsha")
		s.Do("DEL", "job")
	}
}
