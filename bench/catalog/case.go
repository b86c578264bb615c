package catalog

import (
	"slices"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/system"
)

// Kind says what part a contender has.
type Kind string

// The kinds.
const (
	Ours  Kind = "ours"
	Peer  Kind = "peer"
	Floor Kind = "floor"
)

// Contender is one that takes part in a case.
type Contender struct {
	Name string
	Kind Kind
	Work measure.Work

	// Etcd says that it needs an etcd server and no other.
	Etcd bool

	// Sends are the commands that it sends; all others that the server counts are called by scripts. nil: only scripts,
	// subscriptions and what belongs to a connection.
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

// Case is one job under one load.
type Case struct {
	Group, Name, Title string

	Place      Place
	Unix       bool // a unix socket instead of TCP
	TLS        bool
	NoServer   bool
	Procs      int           // processes of a contender; 0 is 1
	RoundTrip  time.Duration // added to each round trip of the last Far processes
	Far        int
	Callers    int // of each process, where that means something
	Length     measure.Length
	Metrics    []Metric // the first decides who is better
	Numbers    func(Outcome) map[string]float64
	Contenders []Contender
}

// With returns the case with only these contenders, or with all if there are no names.
func (c Case) With(names []string) Case {
	if len(names) == 0 {
		return c
	}
	c.Contenders = slices.DeleteFunc(slices.Clone(c.Contenders), func(x Contender) bool { return !slices.Contains(names, x.Name) })
	return c
}

// Metric is one column of a table.
type Metric struct {
	Name  string
	Lower bool // is better
}

// Outcome is all that is known of one measurement.
type Outcome struct {
	Case      Case
	Contender Contender
	Reports   []measure.Report // of each process
	Server    system.Usage
}

// Cases returns all of them, in the order in which they run.
func Cases() []Case {
	var all []Case
	for _, list := range [][]Case{codecCases(), clientCases(), subscribeCases(), lockCases(), kindCases(), contendedCases(), scaleCases()} {
		all = append(all, list...)
	}
	return all
}
