package main

import (
	"os"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

// Output that cannot be written is a failure, and errors of usage say what to write.
func TestServerOutput(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("CONFIG", "SET", "notify-keyspace-events", "KA")
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo ready; cat")
	holder.line()
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}, {"held"}, {"status", "job"}, {"doctor", "--scan=false"}, {"watch"},
		{"help"}, {"help", "run"}, {"completion", "bash"}, {"version"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := lockwireCommand(t, s.URL(), args...)
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = full, &text
		_ = cmd.Run()
		_ = full.Close()
		if code := cmd.ProcessState.ExitCode(); code != codeFailed || !strings.Contains(text.String(), "no space left") {
			t.Errorf("%v: exit code %d, %s", args, code, &text)
		}
	}
	holder.release()
	holder.end().check(t, 0)
	do(t, s.URL(), "run", "job", "--lease", "5", "--", "true").check(t, codeUsage, "", "!with its unit, such as 5s")
	do(t, s.URL(), "run", "job", "--permits", "x", "--", "true").check(t, codeUsage, "", "!not a number of 1 or more")
	do(t, s.URL(), "-o", "json", "status", "job").check(t, codeUsage, "", "!the command comes first, and -o behind it")
}
