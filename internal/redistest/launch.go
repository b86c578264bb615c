package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// configure writes the server's configuration, with a port that was free a moment ago. A file, unlike arguments, has the same
// quoting in all versions, and keeps passwords out of the list of processes.
func (s *Server) configure() error {
	var conf strings.Builder
	set := func(words ...string) {
		for i, word := range words {
			if i > 0 {
				word = strconv.Quote(word)
			}
			conf.WriteString(word + " ")
		}
		conf.WriteByte('\n')
	}
	set("bind", "127.0.0.1")
	set("unixsocket", s.socket())
	set("dir", s.dir)
	set("save", "")
	set("appendonly", "no")
	if s.AtLeast(7, 0) {
		set("enable-debug-command", "yes")
	}
	if s.opts.Password != "" {
		set("requirepass", s.opts.Password)
	}
	if s.opts.node {
		s.configureNode(set)
	}
	s.configureUsers(set)
	if err := s.configurePort(set); err != nil {
		return err
	}
	for _, line := range s.opts.lines {
		set(line...)
	}
	return os.WriteFile(filepath.Join(s.dir, "conf"), []byte(conf.String()), 0o600)
}

// configureUsers adds the ACL users, and a further user for checks.
func (s *Server) configureUsers(set func(...string)) {
	if !s.guarded() {
		return
	}
	all := "~* +@all"
	if s.AtLeast(6, 2) {
		all += " &*"
	}
	for _, u := range append(s.opts.Users, User{Name: checker, Rules: all}) {
		password := "nopass"
		if u.Password != "" {
			password = ">" + u.Password
		}
		set(append([]string{"user", u.Name, "on", password}, strings.Fields(u.Rules)...)...)
	}
}

func (s *Server) configurePort(set func(...string)) error {
	if s.opts.Unix {
		set("port", "0")
		return nil
	}
	var err error
	if s.port, err = s.freePort(); err != nil {
		return err
	}
	if !s.opts.TLS {
		set("port", strconv.Itoa(s.port))
		return nil
	}
	certs, err := certificates()
	if err != nil {
		return err
	}
	auth := "optional"
	if s.opts.TLSClientAuth {
		auth = "yes"
	}
	set("port", "0")
	set("tls-port", strconv.Itoa(s.port))
	set("tls-auth-clients", auth)
	return certs.writeFiles(s.dir, set)
}

// freePort returns a port that was free a moment ago.
func (s *Server) freePort() (int, error) {
	if s.opts.node {
		return freeNodePort()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launch starts the process and waits for its first answer. The error is syscall.EADDRINUSE if the port is taken.
func (s *Server) launch() (*process, error) {
	log, err := os.Create(s.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.opts.Binary.Path, append([]string{filepath.Join(s.dir, "conf")}, s.opts.Args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	proc, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(proc); err != nil {
		return nil, errors.Join(err, proc.end(os.Kill))
	}
	return proc, nil
}

// awaitReady asks until the server answers. A server listens on all its addresses before its first answer.
func (s *Server) awaitReady(proc *process) error {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if v, err := s.Try("PING"); err == nil && v.Err() == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-proc.done:
			tail := s.logTail()
			if strings.Contains(tail, "in use") {
				return syscall.EADDRINUSE
			}
			return fmt.Errorf("it ended at once (%v):\n%s", proc.cmd.ProcessState, tail)
		case <-limit.C:
			return fmt.Errorf("no answer within %v:\n%s", Patience, s.logTail())
		}
	}
}
