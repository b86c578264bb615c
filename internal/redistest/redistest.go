// Package redistest gives a test a Redis or Valkey server of its own: a child process on a free port of 127.0.0.1 or a
// unix socket, with nothing in it and nothing kept of it, which dies with the test or with the test's process.
//
// The programs are those named in LOCKWIRE_REDIS_SERVER, a list separated by commas, or else the redis-server or
// valkey-server found in PATH. Where there is none, a test that asks for a server is skipped, and under CI=true fails.
package redistest

import (
	"fmt"
	"os"
	"testing"
)

// Options say what is special about a server. The zero Options are a plain server on a TCP port, without a password.
type Options struct {
	// Binary is the program to run. The zero Binary is the first of those there are; inside Run and its kind it is
	// the one of the running subtest that has to be named: Options{Binary: s.Binary()}.
	Binary Binary

	// Unix puts the server on a unix socket instead of a TCP port.
	Unix bool

	// TLS makes the TCP port speak TLS only. TLSClientAuth does too, and also asks for a client certificate.
	TLS, TLSClientAuth bool

	// Password is that of the user "default". "" lets everybody in.
	Password string

	// Users are further ACL users. One that is named "default" takes the place of the server's own.
	Users []User

	// Args are further arguments of the program: "--maxclients", "10".
	Args []string

	node bool // of a cluster: made by StartCluster

	lines [][]string // further lines of the configuration
}

// User is one ACL user.
type User struct {
	Name     string
	Password string // "" accepts any password
	Rules    string // as ACL SETUSER takes them: "~app:* +@read"; channels ("&*") are known from 6.2 on
}

// Run runs fn as a subtest for each of the programs, with a server that lives as long as the subtest.
func Run(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	RunOptions(t, Options{}, fn)
}

// RunOptions is Run with a server of a special kind. The Binary of opts is not looked at.
func RunOptions(t *testing.T, opts Options, fn func(t *testing.T, s *Server)) {
	t.Helper()
	for _, bin := range binaries(t) {
		t.Run(bin.String(), func(t *testing.T) {
			opts.Binary = bin
			fn(t, Start(t, opts))
		})
	}
}

// RunProtocols is Run for RESP2 and for RESP3, with a server for each. The Config of that server asks for proto too.
func RunProtocols(t *testing.T, fn func(t *testing.T, s *Server, proto int)) {
	t.Helper()
	for _, bin := range binaries(t) {
		for _, proto := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/resp%d", bin, proto), func(t *testing.T) {
				s := Start(t, Options{Binary: bin})
				s.protocol = proto
				fn(t, s, proto)
			})
		}
	}
}

// Start starts a server that is killed at the end of the test, and returns when it answers. If it cannot, the test has
// failed; if there is no program to start, the test is skipped or, under CI=true, has failed.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	if opts.Binary == (Binary{}) {
		opts.Binary = binaries(t)[0]
	}
	s, err := newServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last that %s on %s wrote:\n%s", s.opts.Binary, s.Addr(), s.logTail())
		}
		s.discard()
	})
	return s
}

// binaries returns the programs there are, at least one, or ends the test.
func binaries(t testing.TB) []Binary {
	t.Helper()
	found, err := findBinaries()
	switch {
	case err != nil:
		t.Fatal(err)
	case len(found) > 0:
	case required():
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
	return found
}

const missing = "redistest: no redis-server in PATH and none named by LOCKWIRE_REDIS_SERVER"

// required reports whether the absence of a server is a failure.
func required() bool { return os.Getenv("CI") == "true" }
