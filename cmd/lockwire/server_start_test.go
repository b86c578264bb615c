//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

// START.md shows what a newcomer types and sees. The test types it, and sees the same but for times, ids and tokens.
func TestServerStart(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	shell := newShell(t, s.URL())
	var job *job
	for block := range consoleBlocks(t, "../../START.md") {
		if strings.HasSuffix(block, " -- sleep 600\n") {
			job = startJob(t, s.URL(), "run", "nightly", "--", "sleep", "600")
			await(t, "the job runs", func() bool { return isHeld(s, "nightly") })
			continue
		}
		if job != nil && strings.HasPrefix(block, "$ lockwire wait nightly\n") {
			job.signal(syscall.SIGINT)
			job.end().check(t, 128+int(syscall.SIGINT))
		}
		for typed := range strings.SplitSeq(strings.TrimPrefix(block, "$ "), "\n$ ") {
			command, want, _ := strings.Cut(strings.TrimSuffix(typed, "\n")+"\n", "\n")
			if got := shell.do(command); steady(got) != steady(want) {
				t.Errorf("%s\n%s\nwant\n%s", command, got, want)
			}
		}
	}
	if job == nil {
		t.Error("START.md has no job to wait for")
	}
}

// consoleBlocks yields the blocks of commands and outputs in a file.
func consoleBlocks(t *testing.T, file string) func(yield func(string) bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string) bool) {
		for _, block := range strings.Split(string(text), "```console\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !yield(block) {
				return
			}
		}
	}
}

// unsteady matches what differs from one time to the next.
var unsteady = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+|process \S+ at \S+|\d[\d./:]*(ms|s|m)?\b|\s+`)

func steady(text string) string {
	return unsteady.ReplaceAllStringFunc(text, func(part string) string {
		if strings.TrimSpace(part) == "" {
			return " "
		}
		return "#"
	})
}

// shell is a newcomer's: an empty directory with main.go, lockwire in the PATH, and this module in place of the published one.
type shell struct {
	t   *testing.T
	url string
	dir string
	env []string
}

func newShell(t *testing.T, url string) *shell {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	s := &shell{t: t, url: url, dir: t.TempDir()}
	bin := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(s.dir, "main.go"): program,
		filepath.Join(bin, "lockwire"): fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 %s=1 exec %q \"$@\"\n", asCommand,
			lockwireCommand(t, "").Path),
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MODULE="+top, "REDIS_URL=", "GOWORK=off", "GOFLAGS=-mod=mod")
	return s
}

// do runs a command and returns what it prints. The published module is the one of this test.
func (s *shell) do(command string) string {
	s.t.Helper()
	if rest, ok := strings.CutPrefix(command, "export "); ok {
		s.env = append(s.env, strings.ReplaceAll(rest, "redis://localhost:6379", s.url))
		return ""
	}
	if strings.HasPrefix(command, "go get ") {
		command = `go mod edit -require=github.com/lockwire/lockwire@v0.0.0 -replace="github.com/lockwire/lockwire=$MODULE"`
	}
	addr := strings.TrimPrefix(s.url, "redis://")
	command = strings.ReplaceAll(command, "localhost:6379", addr)
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, _ := cmd.CombinedOutput() // the exit code is shown where it matters
	return strings.ReplaceAll(string(out), addr, "localhost:6379")
}
