package redistest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// Main is the whole of a TestMain: it runs the tests and ends the process, with a failure if goroutines are left.
//
// Examples with a server find its URL in the environment variable REDIS_URL, whose former value is replaced. An example cannot
// skip itself: without a server Main leaves all examples out by the flag -test.skip, unless the flag is set already, and says
// so; under CI=true Main fails instead.
func Main(m *testing.M) {
	flag.Parse()
	os.Exit(run(m, leakLimit))
}

// run runs the tests and returns the status of the process. Goroutines that are ending have until limit to do so.
func run(m *testing.M, limit time.Duration) int {
	if fuzzing() {
		return m.Run() // many processes, and neither examples nor servers
	}
	discard, err := prepareExamples()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	discard()
	if code != 0 {
		return code
	}
	left := waitForGoroutines(limit)
	for _, stack := range left {
		fmt.Fprintf(os.Stderr, "%s\n\n", stack)
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "redistest: %d goroutines are left after the tests; their stacks are above\n", len(left))
		return 1
	}
	return 0
}

// fuzzing reports whether this process fuzzes, or works for a fuzzing process.
func fuzzing() bool {
	return flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true"
}

// prepareExamples starts the server of the examples, or leaves the examples out. It returns a function to end the server.
func prepareExamples() (discard func(), err error) {
	found, err := findBinaries()
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		s, err := newServer(Options{Binary: found[0]})
		if err != nil {
			return nil, err
		}
		return s.discard, os.Setenv("REDIS_URL", s.URL())
	}
	if required() {
		return nil, errors.New(missing)
	}
	fmt.Println(missing + "; tests that need one and all examples are skipped")
	if skip := flag.Lookup("test.skip"); skip.Value.String() == "" {
		err = skip.Value.Set("^Example")
	}
	return func() {}, err
}
