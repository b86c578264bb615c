package redistest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Patience bounds every wait of a test for a real server: to start, to answer, to take over, to die. A wait ends as soon as its
// condition holds. The bound only ends a test whose server or client hangs, so a busy machine must stay far below the bound.
const Patience = 3 * time.Minute

// Server is a server process of a test. Many goroutines may call the methods at once. A method that cannot do its work fails
// the test by t.Errorf, unless its comment says otherwise.
type Server struct {
	t        testing.TB // nil for the server of examples, started by Main
	opts     Options
	dir      string // configuration, log, certificates and the socket of checks
	port     int    // 0 with a unix socket
	protocol int    // protocol of Config; 0 leaves the choice to conn

	mu     sync.Mutex
	proc   *process // nil while the server is down
	paused bool
}

// newServer makes the files of a server and starts it, on another port if somebody has taken the first.
func newServer(opts Options) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest") // not t.TempDir: the path of a unix socket has room for 100 bytes
	if err != nil {
		return nil, err
	}
	opts.TLS = opts.TLS || opts.TLSClientAuth
	s := &Server{opts: opts, dir: dir}
	for range 5 {
		if err = s.configure(); err != nil {
			break
		}
		if s.proc, err = s.launch(); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("redistest: %s: %w", opts.Binary, err)
	}
	return s, nil
}

// discard kills the server and removes its files.
func (s *Server) discard() {
	s.Kill()
	os.RemoveAll(s.dir)
}

// Binary is the program the server runs.
func (s *Server) Binary() Binary { return s.opts.Binary }

// AtLeast reports whether the server's version is major.minor or newer.
func (s *Server) AtLeast(major, minor int) bool { return s.opts.Binary.AtLeast(major, minor) }

// Network is "tcp" or "unix".
func (s *Server) Network() string {
	if s.opts.Unix {
		return "unix"
	}
	return "tcp"
}

// Addr is host:port or the path of the socket. It stays the same over Restart.
func (s *Server) Addr() string {
	if s.opts.Unix {
		return s.socket()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Config connects to the server as the user "default".
func (s *Server) Config() conn.Config {
	return conn.Config{
		Network:  s.Network(),
		Addr:     s.Addr(),
		Password: s.opts.Password,
		Protocol: s.protocol,
		TLS:      s.TLSConfig(),
	}
}

// URL is Config as a URL, without the certificates for TLS.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	switch {
	case s.opts.Unix:
		u = url.URL{Scheme: "unix", Path: s.Addr()}
	case s.opts.TLS:
		u.Scheme = "rediss"
	}
	if s.opts.Password != "" {
		u.User = url.UserPassword("", s.opts.Password)
	}
	return u.String()
}

// TLSConfig trusts the server's certificate and has one for the client to show; nil without TLS. ServerName is empty:
// the certificate is good for 127.0.0.1, ::1 and localhost.
func (s *Server) TLSConfig() *tls.Config {
	if !s.opts.TLS {
		return nil
	}
	certs, err := certificates()
	if err != nil {
		s.t.Errorf("redistest: certificates: %v", err)
		return nil
	}
	return &tls.Config{RootCAs: certs.pool, Certificates: []tls.Certificate{certs.client}}
}

// Kill ends a running or paused server by SIGKILL, and returns when the process is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(os.Kill)
}

// Stop ends the server by SIGTERM, as an administrator would, and returns when the process is gone. A paused server goes on
// first.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.resume() // endLocked does the work; an error means that the process is gone
	}
	s.endLocked(syscall.SIGTERM)
}

func (s *Server) endLocked(sig os.Signal) {
	if s.proc == nil {
		return
	}
	s.check(s.proc.end(sig))
	s.proc, s.paused = nil, false
}

// Restart starts the server again, empty and on the same address; a running server is killed first. It returns at the server's
// first answer.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(os.Kill)
	proc, err := s.launch()
	s.check(err)
	s.proc = proc
}

// Pause stops the process by SIGSTOP: its connections stay, and the kernel goes on accepting new connections and bytes, but
// nothing is answered. It returns when the process stands still.
func (s *Server) Pause() { s.signal((*process).pause, true) }

// Continue ends a Pause.
func (s *Server) Continue() { s.signal((*process).resume, false) }

func (s *Server) signal(fn func(*process) error, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		s.check(errors.New("the server is down"))
		return
	}
	s.check(fn(s.proc))
	s.paused = paused
}

// up reports whether the server runs and is not paused.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.paused
}

// check fails the test if err is not nil.
func (s *Server) check(err error) {
	if err != nil && s.t != nil {
		s.t.Helper()
		s.t.Errorf("redistest: %v", err)
	}
}

func (s *Server) socket() string  { return filepath.Join(s.dir, "socket") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// logTail is the end of the server's log.
func (s *Server) logTail() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
