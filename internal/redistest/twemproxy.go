package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const noProxy = "redistest: no nutcracker (twemproxy) in PATH"

// StartTwemproxy starts a twemproxy in front of s until the end of the test, and returns its address. Without a twemproxy the
// test is skipped, and under CI=true fails.
func StartTwemproxy(t testing.TB, s *Server) (addr string) {
	t.Helper()
	path, err := exec.LookPath("nutcracker")
	switch {
	case err == nil:
	case required():
		t.Fatal(noProxy)
	default:
		t.Skip(noProxy)
	}
	const tries = 5
	for range tries {
		var proc *process
		if addr, proc, err = launchTwemproxy(path, t.TempDir(), s); err == nil {
			t.Cleanup(func() {
				if err := proc.end(os.Kill); err != nil {
					t.Error(err)
				}
			})
			return addr
		}
	}
	t.Fatal(err)
	return ""
}

func launchTwemproxy(path, dir string, s *Server) (addr string, proc *process, err error) {
	var ports [2]int // of the proxy, and of its statistics, which are always on
	for i := range ports {
		if ports[i], err = (&Server{}).freePort(); err != nil {
			return "", nil, err
		}
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	conf := fmt.Sprintf("pool:\n  listen: %s\n  redis: true\n  servers:\n  - %s:1\n", addr, s.Addr())
	file := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return "", nil, err
	}
	proc, err = startProcess(exec.Command(path, "-c", file, "-o", filepath.Join(dir, "log"), "-p", filepath.Join(dir, "pid"),
		"-a", "127.0.0.1", "-s", strconv.Itoa(ports[1])))
	if err != nil {
		return "", nil, err
	}
	if err := awaitListener(addr, proc); err != nil {
		return "", nil, errors.Join(err, proc.end(os.Kill))
	}
	return addr, proc, nil
}

// awaitListener waits until a process accepts connections.
func awaitListener(addr string, proc *process) error {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if nc, err := net.Dial("tcp", addr); err == nil {
			return nc.Close()
		}
		select {
		case <-again.C:
		case <-proc.done:
			return fmt.Errorf("redistest: twemproxy ended at once (%v)", proc.cmd.ProcessState)
		case <-limit.C:
			return fmt.Errorf("redistest: twemproxy does not listen within %v", Patience)
		}
	}
}
