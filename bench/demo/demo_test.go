package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// demoVariable makes the test program the demo itself, so that a test can kill it.
const demoVariable = "LOCKWIRE_DEMO_UNDER_TEST"

func TestMain(m *testing.M) {
	switch {
	case isWorker():
		os.Exit(workerMain(os.Stdin, os.Stdout))
	case os.Getenv(demoVariable) != "":
		os.Exit(demoMain(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

var short = settings{workers: 3, lease: 1500 * time.Millisecond, length: 5 * time.Second}

// newServer starts a server for a demo that is not to bring its own.
func newServer(t *testing.T) *miniredis.Miniredis {
	s := miniredis.RunT(t)
	s.ClockTTL(true)
	return s
}

// TestDemo is one short run, with processes, on a server that can be looked at afterwards.
func TestDemo(t *testing.T) {
	s := newServer(t)
	choice := short
	choice.redis = "redis://" + s.Addr()
	var out bytes.Buffer
	if err := run(t.Context(), choice, newLines(&out)); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	t.Log("\n" + out.String())
	for _, want := range []string{
		`worker 2 gets SIGKILL before it writes; its lease has \d\.\d\d s left`,
		`worker [13] takes over, \d\.\d\d s after the kill`,
		`worker 2 +\d+ +\d+ +\d+   killed`,
		`✓ overlaps  0 in [\d,]+ holds`,
		`✓ counter   [\d,]+ on the server`,
		`✓ takeover  \d\.\d\d s after SIGKILL`,
		`All is well after \d\.\d\d s\.\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %q in the output", want)
		}
	}
	m := regexp.MustCompile(`(?m)all +([\d,]+) +([\d,]+)$`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatal("no totals")
	}
	// The hold that ended with its worker is the only one without an increment.
	if holds, increments := number(t, m[1]), number(t, m[2]); holds != increments+1 {
		t.Errorf("%d holds and %d increments, want one less", holds, increments)
	}
	wantNoKeys(t, s)
	awaitNoConnections(t, s)
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitNoConnections waits until the server has no more clients, and so no process of the demo is left.
func awaitNoConnections(t *testing.T, s *miniredis.Miniredis) {
	t.Helper()
	await(t, "the end of all connections", func() bool { return s.CurrentConnectionCount() == 0 })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// signalScreen closes its channel when the run shows that a worker has got the lock.
type signalScreen struct {
	*lines
	began chan struct{}
	once  bool
}

func (s *signalScreen) acquired(f *frame, e event) {
	s.lines.acquired(f, e)
	if !s.once {
		s.once = true
		close(s.began)
	}
}

func TestInterrupt(t *testing.T) {
	s := newServer(t)
	choice := short
	choice.redis = "redis://" + s.Addr()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &signalScreen{lines: newLines(io.Discard), began: make(chan struct{})}
	go func() {
		<-out.began
		cancel()
	}()
	if err := run(ctx, choice, out); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v, want %v", err, context.Canceled)
	}
	wantNoKeys(t, s)
	awaitNoConnections(t, s)
}

// wantNoKeys fails the test if s keeps anything for good: a worker that is killed may leave the outcome of its last release,
// which expires.
func wantNoKeys(t *testing.T, s *miniredis.Miniredis) {
	t.Helper()
	for _, key := range s.Keys() {
		if s.TTL(key) == 0 {
			t.Errorf("the server keeps %s", key)
		}
	}
}

// TestWorkersEndWithTheDemo kills the demo, which then cannot end its workers.
func TestWorkersEndWithTheDemo(t *testing.T) {
	s := newServer(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-redis", "redis://"+s.Addr())
	cmd.Env = append(os.Environ(), demoVariable+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := bufio.NewScanner(out)
	found := false
	for !found && all.Scan() {
		found = strings.Contains(all.Text(), "worker 1")
	}
	if !found {
		err := cmd.Wait()
		t.Fatalf("the demo ended before a worker had the lock: %v, %s", err, stderr.String())
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if n := s.CurrentConnectionCount(); n < 5 {
		t.Errorf("%d connections, want one of each worker and the demo at least", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitNoConnections(t, s)
}

func TestNoServer(t *testing.T) {
	s := newServer(t)
	addr := s.Addr()
	s.Close()
	var stderr bytes.Buffer
	status := demoMain([]string{"-redis", "redis://:secret@" + addr + "/0?dial_timeout=1s"}, io.Discard, &stderr)
	if status != 1 || !strings.Contains(stderr.String(), addr) || strings.Contains(stderr.String(), "secret") {
		t.Errorf("status %d with %q, want 1 and the address without the password", status, stderr.String())
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"-h", 0, "-redis URL"},
		{"-workers 1", 2, "-workers"},
		{"-workers 10", 2, "-workers"},
		{"-lease 10ms", 2, "-lease"},
		{"-for 8s", 2, "-for"},
		{"-for 25s", 2, "-for"},
		{"-lease 1h", 2, "-for"},
		{"-what", 2, "-what"},
		{"please", 2, "please"},
		{"-redis http://localhost", 1, "scheme"},
	} {
		var stderr bytes.Buffer
		if status := demoMain(strings.Fields(tt.args), io.Discard, &stderr); status != tt.status {
			t.Errorf("demo %s: status %d, want %d", tt.args, status, tt.status)
		}
		if !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("demo %s says %q, want something about %q", tt.args, stderr.String(), tt.want)
		}
	}
}

// TestPlan holds that the parts of the longest run, and what may come in between, fit into the limit.
func TestPlan(t *testing.T) {
	for _, s := range []settings{
		{lease: 3 * time.Second, length: 18 * time.Second},
		{lease: 7 * time.Second, length: longest},
		short,
	} {
		p := s.plan()
		if p.stay <= s.lease || p.turns <= 0 || p.after <= 0 || p.sprint <= 0 {
			t.Errorf("plan of %+v: %+v, want parts that last, and a stay longer than the lease", s, p)
		}
		sum := p.turns + p.stay + s.lease + p.after + p.sprint
		if d := s.length - sum; d < 0 || d > time.Millisecond {
			t.Errorf("plan of %+v: %+v, together %v", s, p, sum)
		}
	}
	if most := limit + endGrace + answerLimit; most > 30*time.Second {
		t.Errorf("a run that hangs is given up after %v", most)
	}
}
