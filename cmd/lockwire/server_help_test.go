//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

// Each example of the help runs in a shell and has the exit code that it is said to have.
func TestServerExamples(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder := startHeld(t, s.URL(), "run", "orders", "--kind", "reentrant", "--", "sh", "-c", "echo ready; cat")
	holder.line()
	released := startHeld(t, s.URL(), "run", "invoices", "--", "sh", "-c", "echo ready; cat")
	released.line()
	bin := t.TempDir()
	self := lockwireCommand(t, s.URL())
	script := fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 %s=1 exec %q \"$@\"\n", asCommand, self.Path)
	if err := os.WriteFile(filepath.Join(bin, "lockwire"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if len(c.examples) == 0 {
			t.Errorf("%s has no example", c.name)
		}
		for _, e := range c.examples {
			shell := exec.CommandContext(t.Context(), "bash", "-c", e.line)
			shell.Env = append(os.Environ(), "REDIS_URL="+s.URL(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, _ := shell.CombinedOutput()
			if code := shell.ProcessState.ExitCode(); code != e.code {
				t.Errorf("%s\nexit code %d, want %d\n%s", e.line, code, e.code, out)
			}
		}
	}
	holder.release()
	holder.end().check(t, 0)
	released.end().check(t, codeLost)
}

func TestHelp(t *testing.T) {
	overview := do(t, "")
	overview.check(t, 0, "usage: lockwire COMMAND")
	if r := do(t, "", "help"); r != overview {
		t.Errorf("lockwire help is not lockwire: %+v", r)
	}
	if r := do(t, "", "help", "help"); r != overview {
		t.Errorf("lockwire help help is not lockwire: %+v", r)
	}
	for _, c := range commands() {
		if !strings.Contains(overview.stdout, "  "+c.name+" ") {
			t.Errorf("the overview does not have %s", c.name)
		}
		long := do(t, "", append([]string{"help"}, c.words()...)...)
		long.check(t, 0, "usage: lockwire "+c.name, "-o FORMAT")
		if r := do(t, "", append(c.words(), "--help")...); r != long {
			t.Errorf("%s --help: %+v, want what help prints", c.name, r)
		}
		for line := range strings.Lines(long.stdout) {
			if len([]rune(line)) > 170 {
				t.Errorf("%s: a line of the help is too long: %s", c.name, line)
			}
		}
	}
	do(t, "", "run", "-h").check(t, 0, "usage: lockwire run")
	do(t, "", "--version").check(t, 0, "lockwire ")
	do(t, "", "help", "no-such").check(t, 64, "", "!unknown command")
	do(t, "", "no-such").check(t, 64, "", "!unknown command")
	do(t, "", "leader").check(t, 64, "", "!leader is followed by run or show: see lockwire help leader run")
	do(t, "", "help", "leader").check(t, 64, "", "!leader is followed by run or show")
}

// No password comes from the command line, and none goes to an error.
func TestServerConnection(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Password: "s3cr3t"})
	plain := strings.Replace(s.URL(), ":s3cr3t@", "", 1)
	file := write(t, "url", s.URL()+"\nmore\n", 0o600)
	password, wrong := write(t, "password", "s3cr3t\n", 0o600), write(t, "wrong", "s3cr3t2\n", 0o600)
	empty := write(t, "empty", "\n", 0o600)
	rest := []string{"run", "job", "--", "true"}
	for _, tt := range []struct {
		url  string
		args []string
		code int
		want string
	}{
		{s.URL(), nil, 0, ""},
		{"", []string{"--url-file", file}, 0, ""},
		{"redis://127.0.0.1:1", []string{"--url-file", file}, 0, ""},
		{plain, []string{"--password-file", password}, 0, ""},
		{"", []string{"--url", plain, "--password-file", password}, 0, ""},
		{"", nil, 64, "set REDIS_URL=redis://host:6379"},
		{"localhost:6379", nil, 64, "no scheme: write redis://"},
		{"redis-cluster://h:x", nil, 64, "malformed"},
		{"", []string{"--url", s.URL()}, 64, "--url may not have a password"},
		{"", []string{"--url", plain, "--url-file", file}, 64, "exclude each other"},
		{"", []string{"--url-file", "/no/such/file"}, 64, "/no/such/file"},
		{"", []string{"--url-file", empty}, 64, "the first line is empty"},
		{plain, nil, 77, "NOAUTH"},
		{plain, []string{"--password-file", wrong}, 77, "WRONGPASS"},
		{"redis://127.0.0.1:1", []string{"--connect-timeout", "1s"}, 69, "127.0.0.1:1"},
		{s.URL(), []string{"-o", "xml"}, 64, "-o is text or json"},
		{s.URL(), []string{"--no-such-flag"}, 64, "no-such-flag"},
	} {
		r := do(t, tt.url, append(append([]string{}, rest[:2]...), append(tt.args, rest[2:]...)...)...)
		r.check(t, tt.code, "", "!"+tt.want)
		if strings.Contains(r.stderr, "s3cr3t") {
			t.Errorf("%v: %s", tt.args, r.stderr)
		}
	}
}
