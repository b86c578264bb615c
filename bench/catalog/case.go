package catalog

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/system"
)

// Kind is the part of a contender.
type Kind string

// The kinds.
const (
	Ours  Kind = "ours"
	Peer  Kind = "peer"
	Floor Kind = "floor"
)

// Contender takes part in a case.
type Contender struct {
	Name string
	Kind Kind
	Work measure.Work

	// Etcd: the contender needs an etcd server only.
	Etcd bool

	// Sends are the commands sent by the contender; all further commands counted by the server are called by scripts. nil: only
	// scripts, subscriptions and commands about the connection.
	Sends []string
}

// Place says where the processes run.
type Place string

// The places. The server is on the first CPU, except where nothing is pinned.
const (
	SameCPU Place = "same CPU"
	Split   Place = "split"
	Both    Place = "clients on both CPUs"
	Free    Place = "not pinned"
)

// Case is a job under a load.
type Case struct {
	Group, Name, Title string

	Place      Place
	Unix       bool // a unix socket instead of TCP
	TLS        bool
	NoServer   bool
	Servers    int           // 0 is 1
	Procs      int           // processes of a contender; 0 is 1
	RoundTrip  time.Duration // added to each round trip of the last Far processes
	Far        int
	Callers    int // of each process, if meaningful
	Length     measure.Length
	Metrics    []Metric // the first decides the comparison
	Numbers    func(Outcome) map[string]float64
	Contenders []Contender
}

// With returns the case with only the named contenders, or with all without names.
func (c Case) With(names []string) Case {
	if len(names) == 0 {
		return c
	}
	c.Contenders = slices.DeleteFunc(slices.Clone(c.Contenders), func(x Contender) bool { return !slices.Contains(names, x.Name) })
	return c
}

// Metric is a column of a table.
type Metric struct {
	Name  string
	Lower bool // is better
}

// Outcome is the full result of a measurement.
type Outcome struct {
	Case      Case
	Contender Contender
	Reports   []measure.Report // of each process
	Server    system.Usage
}

// Cases returns all cases, in the order of their runs.
func Cases() []Case {
	var all []Case
	for _, list := range [][]Case{codecCases(), clientCases(), subscribeCases(), lockCases(), kindCases(), redlockCases(), contendedCases(), scaleCases()} {
		all = append(all, list...)
	}
	return all
}
