package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/lockwire/lockwire/internal/redistest"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	var number, unlock uint32
	for request, arg := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return user, program
}

// screen is a terminal with a shell, and what the shell and its programs have written.
type screen struct {
	t    *testing.T
	user *os.File
	text chan string
	seen string // behind the text awaited last

	before string // what was in front of that text
}

// startShell starts an interactive shell in which "lockwire" is the command.
func startShell(t *testing.T, url string) *screen {
	t.Helper()
	user, program := openTerminal(t)
	shell := lockwireCommand(t, url)
	self := shell.Path
	shell.Path, shell.Args = "/bin/bash", []string{"bash", "--norc", "--noediting", "-i"}
	shell.Env = append(shell.Env, "PS1=$ ", "lockwire="+self, "HISTFILE=")
	shell.Stdin, shell.Stdout, shell.Stderr = program, program, program
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close()
	s := &screen{t: t, user: user, text: make(chan string)}
	go s.read()
	t.Cleanup(func() {
		_ = shell.Process.Signal(syscall.SIGHUP) // the shell passes it on to its jobs
		_ = shell.Wait()
		_ = user.Close()
		for range s.text { // until read has ended
		}
	})
	return s
}

func (s *screen) read() {
	defer close(s.text)
	buf := make([]byte, 4096)
	for {
		n, err := s.user.Read(buf)
		if err != nil {
			return
		}
		s.text <- string(buf[:n])
	}
}

// write types a text.
func (s *screen) write(text string) {
	s.t.Helper()
	if _, err := s.user.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until the screen shows a text behind those awaited before.
func (s *screen) await(text string) {
	s.t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		if before, rest, ok := strings.Cut(s.seen, text); ok {
			s.before, s.seen = before, rest
			return
		}
		select {
		case more, ok := <-s.text:
			if !ok {
				s.t.Fatalf("the terminal is closed; want %q, have %q", text, s.seen)
			}
			s.seen += more
		case <-limit.C:
			s.t.Fatalf("the screen does not show %q but %q", text, s.seen)
		}
	}
}

// On a terminal, the program reads what is typed, Ctrl-C reaches it, and Ctrl-Z and fg work as without the command.
func TestServerRunOnTerminal(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	s.write("$lockwire run job -- sh -c 'read line; echo got=$line'\n")
	await(t, "the lock is held", func() bool { return isHeld(srv, "job") })
	s.write("typed\n")
	s.await("got=typed")
	s.write("echo code=$?\n")
	s.await("code=0")

	s.write("$lockwire run job -- sh -c 'trap \"echo caught; exit 4\" INT; echo loop; while :; do sleep 0.01; done'\n")
	s.await("loop\r\n")
	s.write("\x03")
	s.await("caught")
	s.write("echo code=$?\n")
	s.await("code=4")

	s.write("$lockwire run job -- sh -c 'echo begun; read line; echo got=$line'\n")
	s.await("begun\r\n")
	s.write("\x1a")
	s.await("Stopped")
	s.write("echo shell=$((1+1))\n")
	s.await("shell=2")
	s.write("fg\n")
	s.await("$lockwire run job")
	s.write("again\n")
	s.await("got=again")
	s.write("echo code=$?\n")
	s.await("code=0")
	if isHeld(srv, "job") {
		t.Error("the lock is still held")
	}
}

// A program that was stopped on the terminal until its lease had ended does not go on.
func TestServerRunStoppedTooLong(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	s.write("$lockwire run job --lease 1s -- sh -c 'echo begun; read line; echo went=on'\n")
	s.await("begun\r\n")
	s.write("\x1a")
	s.await("Stopped")
	await(t, "the lease has ended", func() bool { return !isHeld(srv, "job") })
	s.write("fg\n")
	s.await("the lock is lost")
	s.write("echo code=$?\n")
	s.await("code=76")
}

// namedPipe returns a pipe in the file system. Who opens one end waits for the other.
func namedPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// state is the state of a process, and the group in the foreground of its terminal.
func state(t *testing.T, pid string) (state, foreground string) {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	return fields[0], fields[5]
}

// startBackground starts a program under the lock "job" in the background, and returns the ids of the program and of the command.
func (s *screen) startBackground(program string) (pid, command string) {
	s.t.Helper()
	s.write("$lockwire run job -- sh -c 'echo pid=$$,$PPID.; " + program + "' &\n")
	s.await("&\r\n")
	s.await("pid=")
	s.await(",")
	pid = s.before
	s.await(".")
	return pid, s.before
}

// fg brings the job to the foreground, and waits until it is there: the command or, if lent, its program.
func (s *screen) fg(pid, leader string) {
	s.t.Helper()
	s.write("fg\n")
	await(s.t, "the job is in the foreground", func() bool {
		_, foreground := state(s.t, pid)
		return foreground == leader
	})
}

// A program that was stopped on the terminal and continued in the background ends there: the shell keeps the terminal.
func TestServerRunEndsInBackground(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	pipe := namedPipe(t)
	s.write("$lockwire run job -- sh -c 'echo begun; read line <" + pipe + "; echo got=$line'\n")
	s.await("begun\r\n")
	s.write("\x1a")
	s.await("Stopped")
	s.write("bg\n")
	s.write("echo shell=$((1+1))\n")
	s.await("shell=2")
	if err := os.WriteFile(pipe, []byte("end\n"), 0); err != nil {
		t.Fatal(err)
	}
	s.await("got=end")
	await(t, "the lock is free", func() bool { return !isHeld(srv, "job") })
	s.write("wait; echo shell=$((2+2))\n")
	s.await("shell=4")
}

// A program that was started in the background is stopped when it reads, and gets the terminal with fg.
func TestServerRunFromBackground(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	pid, _ := s.startBackground("read line; echo got=$line; while :; do sleep 0.01; done")
	s.write("until [ -n \"$(jobs -s)\" ]; do :; done; echo sto''pped\n")
	s.await("stopped")
	s.fg(pid, pid)
	s.write("typed\n")
	s.await("got=typed")
	s.write("\x03")
	s.write("echo code=$?\n")
	s.await("code=130")
}

// Ctrl-Z stops the program of a command that came to the foreground by fg. The program would go on without its lock
// otherwise, because the command stops in any case.
func TestServerRunPausedAfterBackground(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	pid, command := s.startBackground("read line <" + namedPipe(t))
	s.fg(pid, command)
	s.write("\x1a")
	s.await("Stopped")
	if got, _ := state(t, pid); got != "T" {
		t.Errorf("the program has the state %s, want T", got)
	}
	s.fg(pid, command)
	s.write("\x03")
	s.write("echo code=$?\n")
	s.await("code=130")
}

// Ctrl-Z stops a command that runs another one, too, and both go on.
func TestServerRunNestedPaused(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	s.write("$lockwire run outer -- $lockwire run inner -- sh -c 'echo begun; read line; echo got=$line'\n")
	s.await("begun\r\n")
	s.write("\x1a")
	s.await("Stopped")
	s.write("fg\n")
	s.await("$lockwire run outer")
	s.write("again\n")
	s.await("got=again")
	s.write("echo code=$?\n")
	s.await("code=0")
}

// In a pipeline the other programs read what is typed, too, and Ctrl-C reaches all.
func TestServerRunInPipeline(t *testing.T) {
	srv := redistest.Start(t, redistest.Options{})
	s := startShell(t, srv.URL())
	s.write("$lockwire run job -- echo begun | sh -c 'cat; read line </dev/tty; echo pager=$line'\n")
	s.await("begun\r\n")
	s.write("typed\n")
	s.await("pager=typed")

	s.write("sleep 1000 | $lockwire run job -- sh -c 'trap \"echo caught; exit 4\" INT; echo loop; while :; do sleep 0.01; done'\n")
	s.await("loop\r\n")
	s.write("\x03")
	s.await("caught")
	s.write("echo code=$?\n")
	s.await("code=4")

	s.write("$lockwire run job -- sh -c 'echo begun; read line; echo got=$line' | cat\n")
	s.await("begun\r\n")
	s.write("typed\n")
	s.await("got=typed")
}
