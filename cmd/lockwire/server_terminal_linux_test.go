package main

import (
	"fmt"
	"os"
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
	seen string
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
		_ = shell.Process.Kill()
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
		if _, rest, ok := strings.Cut(s.seen, text); ok {
			s.seen = rest
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
