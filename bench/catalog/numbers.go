package catalog

import (
	"fmt"
	"slices"

	"github.com/lockwire/lockwire/bench/measure"
)

// Names of numbers in several tables and in goals.
const (
	OpsPerSecond = "ops/s"
	P50          = "p50 µs"
	P99          = "p99 µs"
	P999         = "p99.9 µs"
	ClientCPU    = "client CPU µs/op"
	ServerCPU    = "server CPU µs/op"
	PerRead      = "commands per server read"
	Allocs       = "allocs/op"
	Bytes        = "B/op"
	Nanoseconds  = "ns/op"
	Handoffs     = "hand-overs/s"
	HandoffP50   = "hand-over p50 µs"
	HandoffP99   = "hand-over p99 µs"
	Sent         = "commands sent/op"
	Fairness     = "Jain"
	FairnessProc = "Jain of processes"
	Overlaps     = "overlaps"
	HeldShare    = "held %"                  // of the time
	FirstShare   = "share of an equal one's" // the first process's part of an equal share
)

var (
	opsPerSecond = Metric{Name: OpsPerSecond}
	clientMetric = []Metric{opsPerSecond, lower(P50), lower(P99), lower(P999), lower(ClientCPU), lower(ServerCPU), {Name: PerRead},
		lower(Allocs), lower(Bytes)}
	lockMetric = []Metric{opsPerSecond, lower(P50), lower(P99), lower(P999), lower(ClientCPU), lower(ServerCPU), {Name: PerRead},
		lower(Sent), lower("commands with those in scripts/op"), lower(Allocs), lower(Bytes)}
)

func lower(name string) Metric { return Metric{Name: name, Lower: true} }

// total sums up the work of all processes.
func (o Outcome) total() measure.Report {
	var t measure.Report
	for i := range o.Reports {
		r := &o.Reports[i]
		t.Ops += r.Ops
		t.Seconds = max(t.Seconds, r.Seconds)
		t.CPU += r.CPU
		t.Mallocs += r.Mallocs
		t.Bytes += r.Bytes
		t.Latency.Add(&r.Latency)
		t.Holds = append(t.Holds, r.Holds...)
		for name, value := range r.Extra {
			t.Set(name, t.Extra[name]+value)
		}
	}
	return t
}

// general are the numbers of any case with operations.
func general(o Outcome) map[string]float64 {
	t := o.total()
	n := max(float64(t.Ops), 1)
	numbers := map[string]float64{
		OpsPerSecond: float64(t.Ops) / t.Seconds,
		Nanoseconds:  t.Seconds * 1e9 / n,
		P50:          t.Latency.Quantile(0.5) / 1e3,
		P99:          t.Latency.Quantile(0.99) / 1e3,
		P999:         t.Latency.Quantile(0.999) / 1e3,
		ClientCPU:    t.CPU * 1e6 / n,
		Allocs:       t.Mallocs / n,
		Bytes:        t.Bytes / n,
	}
	if o.Case.NoServer {
		numbers[Nanoseconds] = t.CPU * 1e9 / n // the same on an otherwise idle machine
	} else {
		numbers[ServerCPU] = o.Server.CPU * 1e6 / n
	}
	for name, value := range t.Extra {
		numbers[name] = value
	}
	return numbers
}

// client adds the number of commands per read of the server.
func client(o Outcome) map[string]float64 {
	numbers := general(o)
	if o.Server.Reads > 0 {
		numbers[PerRead] = float64(o.total().Ops) / float64(o.Server.Reads)
	}
	return numbers
}

// sentByAll are commands never called by a script.
var sentByAll = []string{"evalsha", "eval", "evalsha_ro", "fcall", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe",
	"hello", "ping", "client|setinfo", "client|setname", "client|tracking", "script|load"}

// locked adds the commands per acquisition.
func locked(o Outcome) map[string]float64 {
	numbers := general(o)
	if o.Contender.Etcd {
		return numbers
	}
	sent, all := int64(0), int64(0)
	for name, n := range o.Server.Commands {
		all += n
		if slices.Contains(sentByAll, name) || slices.Contains(o.Contender.Sends, name) {
			sent += n
		}
	}
	n := max(float64(o.total().Ops), 1)
	numbers[Sent] = float64(sent) / n
	numbers["commands with those in scripts/op"] = float64(all) / n
	if o.Server.Reads > 0 {
		numbers[PerRead] = float64(sent) / float64(o.Server.Reads)
	}
	return numbers
}

// contended adds how the lock went around.
func contended(o Outcome) map[string]float64 {
	numbers := locked(o)
	t := o.total()
	if len(t.Holds) == 0 {
		return numbers
	}
	c := measure.Contend(t.Holds, max(o.Case.Procs, 1), o.Case.Callers)
	numbers[Handoffs] = float64(c.Handoffs) / t.Seconds
	numbers["release to next p50 µs"] = c.Release.Quantile(0.5) / 1e3
	numbers["release to next p99 µs"] = c.Release.Quantile(0.99) / 1e3
	if c.Handoffs > 0 {
		numbers[HandoffP50] = c.Handoff.Quantile(0.5) / 1e3
		numbers[HandoffP99] = c.Handoff.Quantile(0.99) / 1e3
	}
	numbers["wait p50 ms"] = c.Wait.Quantile(0.5) / 1e6
	numbers["wait max ms"] = c.Wait.Quantile(1) / 1e6
	numbers["most of a caller"] = float64(c.Most)
	numbers["least of a caller"] = float64(c.Least)
	numbers["starved"] = float64(c.Starved)
	numbers[Fairness] = c.Jain
	numbers[FairnessProc] = c.JainProcs
	numbers[Overlaps] = float64(c.Overlaps)
	numbers[HeldShare] = 100 * c.Held.Seconds() / t.Seconds
	for i, n := range c.OfProcs {
		numbers[shareOf(i)] = 100 * float64(n) / float64(c.Acquisitions)
	}
	numbers[FirstShare] = float64(c.OfProcs[0]*len(c.OfProcs)) / float64(c.Acquisitions)
	return numbers
}

// shareOf names a process's share of all acquisitions.
func shareOf(proc int) string { return fmt.Sprintf("process %d %%", proc+1) }

// scaled are shares of time rather than of operations.
func scaled(o Outcome) map[string]float64 {
	t := o.total()
	numbers := t.Extra
	numbers["count"] = float64(t.Ops)
	numbers["client CPU %"] = 100 * t.CPU / t.Seconds
	numbers["server CPU %"] = 100 * o.Server.CPU / t.Seconds
	numbers["connections"] = float64(o.Server.Clients)
	sent := int64(0)
	for name, n := range o.Server.Commands {
		if slices.Contains(sentByAll, name) {
			sent += n
		}
	}
	numbers["commands sent/s"] = float64(sent) / t.Seconds
	return numbers
}
