package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
)

// asCommand makes this program the command in place of the tests.
const asCommand = "LOCKWIRE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	for _, sig := range passedSignals {
		if signal.Ignored(sig) { // as under nohup: commands would ignore it, too, unless it is caught here
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	redistest.Main(m)
}

// result is what a command leaves behind.
type result struct {
	code           int
	stdout, stderr string
}

// job is a running command.
type job struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Reader // of standard output
	stdin  io.Closer     // of a command from startHeld
	stderr bytes.Buffer
}

// lockwireCommand returns a command that has not started yet. REDIS_URL is url.
func lockwireCommand(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "REDIS_URL="+url,
		"GORACE=atexit_sleep_ms=0") // the race detector waits for a second otherwise
	return cmd
}

// startJob starts a command, which is killed at the end of the test if it still runs.
func startJob(t *testing.T, url string, args ...string) *job {
	t.Helper()
	j := &job{t: t, cmd: lockwireCommand(t, url, args...)}
	j.start()
	return j
}

// startHeld is startJob with a standard input that stays open until release.
func startHeld(t *testing.T, url string, args ...string) *job {
	t.Helper()
	j := &job{t: t, cmd: lockwireCommand(t, url, args...)}
	in, err := j.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.stdin = in
	j.start()
	return j
}

func (j *job) start() {
	j.t.Helper()
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	j.lines = bufio.NewReader(out)
	j.cmd.Stderr = &j.stderr
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
}

// release ends the standard input.
func (j *job) release() { _ = j.stdin.Close() }

// line returns the next line of standard output, and waits for it.
func (j *job) line() string {
	j.t.Helper()
	text, err := j.lines.ReadString('\n')
	if err != nil {
		_ = j.cmd.Wait()
		j.t.Fatalf("%q: %v; standard error: %s", j.cmd.Args[1:], err, &j.stderr)
	}
	return strings.TrimSuffix(text, "\n")
}

func (j *job) signal(sig syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil {
		j.t.Fatal(err)
	}
}

// end waits for the end of the command.
func (j *job) end() result {
	j.t.Helper()
	rest, err := io.ReadAll(j.lines)
	if err != nil {
		j.t.Fatal(err)
	}
	_ = j.cmd.Wait()
	return result{j.cmd.ProcessState.ExitCode(), string(rest), j.stderr.String()}
}

// do runs a command.
func do(t *testing.T, url string, args ...string) result {
	t.Helper()
	return startJob(t, url, args...).end()
}

// check compares a result: its exit code, and a text that standard output, or with "!" in front standard error, contains.
func (r result) check(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; output %q, errors %q", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if wanted, ok := strings.CutPrefix(text, "!"); ok && !strings.Contains(r.stderr, wanted) {
			t.Errorf("errors %q, want %q in it", r.stderr, wanted)
		} else if !ok && !strings.Contains(r.stdout, text) {
			t.Errorf("output %q, want %q in it", r.stdout, text)
		}
	}
}

// decode decodes lines of JSON.
func decode(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// await waits until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-limit.C:
			t.Fatal("never: " + what)
		case <-again.C:
		}
	}
}

// isHeld reports whether a key exists.
func isHeld(s *redistest.Server, name string) bool {
	n, _ := s.Do("EXISTS", name).Int()
	return n == 1
}

// write writes a file of the test and returns its path.
func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}
