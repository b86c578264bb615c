package redistest

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain is Main, but the child with a leak does not wait for minutes until that is one.
func TestMain(m *testing.M) {
	limit := leakLimit
	if os.Getenv(childVar) == "leak" {
		limit = 5 * time.Second
	}
	flag.Parse()
	os.Exit(run(m, limit))
}

// childVar says to a test process started by a test what it is for.
const childVar = "REDISTEST_CHILD"

// child prepares this test program to run again, only the test named and with these variables.
func child(t *testing.T, test string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// TestForChildren does nothing but in the processes that the tests below start.
func TestForChildren(t *testing.T) {
	switch os.Getenv(childVar) {
	case "leak":
		go func() { select {} }()
	case "server":
		fmt.Println("socket:", Start(t, Options{}).socket())
		select {}
	case "need":
		Start(t, Options{})
	}
}

func TestMainFindsLeak(t *testing.T) {
	if out, err := child(t, "TestForChildren").CombinedOutput(); err != nil {
		t.Errorf("without a leak: %v\n%s", err, out)
	}
	cmd := child(t, "TestForChildren", childVar+"=leak")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "1 goroutines are left") || !strings.Contains(string(out), "redistest.TestForChildren") {
		t.Errorf("with a leak: %v\n%s", err, out)
	}
}

func TestMainWithoutServer(t *testing.T) {
	none := []string{childVar + "=need", "PATH=" + t.TempDir(), "LOCKWIRE_REDIS_SERVER="}
	out, err := child(t, "TestForChildren", append(none, "CI=")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- SKIP: TestForChildren") {
		t.Errorf("on a developer's machine: %v\n%s", err, out)
	}
	out, err = child(t, "TestForChildren", append(none, "CI=true")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), missing) {
		t.Errorf("under CI=true: %v\n%s", err, out)
	}
}

func TestServerDiesWithProcess(t *testing.T) {
	binaries(t)
	if runtime.GOOS != "linux" {
		return
	}
	cmd := child(t, "TestForChildren", childVar+"=server", "TMPDIR="+t.TempDir()) // it removes no files when killed
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket := ""
	for lines := bufio.NewScanner(out); socket == "" && lines.Scan(); {
		_, socket, _ = strings.Cut(lines.Text(), "socket: ")
	}
	s := &Server{t: t, dir: filepath.Dir(socket)}
	if _, err := s.Try("PING"); err != nil {
		t.Errorf("the child's server: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(Patience); ; <-time.After(time.Millisecond) {
		if _, err := s.Try("PING"); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server outlives the process that started it")
		}
	}
}

func TestWaitForGoroutines(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	if got := waitForGoroutines(10 * time.Millisecond); len(got) != 1 || !strings.Contains(got[0], "TestWaitForGoroutines") {
		t.Errorf("with one left: %q", got)
	}
	close(stop)
	if got := waitForGoroutines(Patience); len(got) > 0 {
		t.Errorf("with none left: %q", got)
	}
}

func TestLookBinaries(t *testing.T) {
	if _, err := lookBinaries("no-such-server"); err == nil {
		t.Error("a program that does not exist was accepted")
	}
	liar := filepath.Join(t.TempDir(), "liar")
	if err := os.WriteFile(liar, []byte("#!/bin/sh\necho 'Redis server v=6.9.12-beta sha=0'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	found, err := lookBinaries(liar + ", " + liar + ",")
	if err != nil || len(found) != 2 || found[0].String() != "redis-6.9.12-beta" {
		t.Errorf("lookBinaries = %v, %v", found, err)
	}
	if err := os.WriteFile(liar, []byte("#!/bin/sh\necho something else\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := lookBinaries(liar); err == nil {
		t.Error("a program that is no server was accepted")
	}
	t.Setenv("PATH", t.TempDir())
	if found, err := lookBinaries(" "); err != nil || len(found) > 0 {
		t.Errorf("with nothing there: %v, %v", found, err)
	}
}

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		version      string
		major, minor int
		want         bool
	}{
		{"7.0.15", 7, 0, true},
		{"7.0.15", 7, 1, false},
		{"6.2.0", 7, 0, false},
		{"6.2.0", 6, 0, true},
		{"10.0.1", 7, 4, true},
	} {
		if got := (Binary{Version: c.version}).AtLeast(c.major, c.minor); got != c.want {
			t.Errorf("%s AtLeast(%d, %d) = %v, want %v", c.version, c.major, c.minor, got, c.want)
		}
	}
}
