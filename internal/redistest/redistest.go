// Package redistest gives a test a private Redis or Valkey server: an empty child process on a free port of 127.0.0.1 or a unix
// socket, without files left behind. The server dies with the test or with the test's process.
//
// LOCKWIRE_REDIS_SERVER names the programs, separated by commas; without the variable, redis-server or valkey-server is looked
// up in PATH. Without a program, a test that asks for a server is skipped, and under CI=true fails.
package redistest

import (
	"fmt"
	"os"
	"testing"
)

// Options say what is special about a server. The zero Options are a plain server on a TCP port, without a password.
type Options struct {
	// Binary is the program to run. The zero Binary is the first program available; inside Run and similar functions, name the
	// program of the running subtest: Options{Binary: s.Binary()}.
	Binary Binary

	// Unix puts the server on a unix socket instead of a TCP port.
	Unix bool

	// TLS makes the TCP port speak TLS only. TLSClientAuth does too, and also asks for a client certificate.
	TLS, TLSClientAuth bool

	// Password is the password of the user "default". "" lets everybody in.
	Password string

	// Users are further ACL users. A user with the name "default" replaces the server's default user.
	Users []User

	// Args are further arguments of the program: "--maxclients", "10".
	Args []string

	node bool // of a cluster: made by StartCluster

	lines [][]string // further lines of the configuration
}

// User is an ACL user.
type User struct {
	Name     string
	Password string // "" accepts any password
	Rules    string // as in ACL SETUSER: "~app:* +@read"; channels ("&*") are known from 6.2 on
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

// Start starts a server that is killed at the end of the test, and returns at the server's first answer. On a failure the test
// has failed; without a program to start, the test is skipped or, under CI=true, has failed.
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

// binaries returns the available programs, at least a single program, or ends the test.
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
