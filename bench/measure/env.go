package measure

import (
	"crypto/tls"
	"time"
)

// Env is the environment of a process in a measurement.
type Env struct {
	Network, Addr string      // of the Redis server: "tcp" or "unix"
	Further       []string    // addresses of further servers, for a lock on several
	TLS           *tls.Config // nil: without
	Etcd          string      // endpoint of an etcd server, "" for none
	Proc, Procs   int         // number of this process in the measurement
	Length        Length

	// Begin and End, if set, are called around what is measured. Begin returns when all processes are ready.
	Begin, End func()
}

// Servers are the addresses of all servers.
func (e Env) Servers() []string { return append([]string{e.Addr}, e.Further...) }

// Length says how long to measure.
type Length struct {
	Warm, For time.Duration
	Ops       int // if above 0: every caller does so many operations, and the two above do not count
}

// Work is a contender in a case, run once in a process.
type Work func(env Env) (Report, error)

func (e Env) begin() {
	if e.Begin != nil {
		e.Begin()
	}
}

func (e Env) end() {
	if e.End != nil {
		e.End()
	}
}
