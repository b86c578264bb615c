package catalog

import (
	"fmt"
	"time"

	"github.com/lockwire/lockwire/bench/clients"
	"github.com/lockwire/lockwire/bench/codec"
	"github.com/lockwire/lockwire/bench/fanin"
	"github.com/lockwire/lockwire/bench/measure"
)

func codecCases() []Case {
	decoders := []struct {
		name string
		kind Kind
		d    codec.Decoder
	}{
		{"lockwire", Ours, codec.Lockwire},
		{"go-redis", Peer, codec.GoRedis},
		{"go-redis typed", Peer, codec.GoRedisTyped},
		{"rueidis", Peer, codec.Rueidis},
		{"rueidis typed", Peer, codec.RueidisTyped},
		{"redigo", Peer, codec.Redigo},
		{"radix", Peer, codec.Radix},
		{"radix typed", Peer, codec.RadixTyped},
		{"views", Floor, codec.Views},
	}
	titles := []string{"+OK", "integer", "bulk string of 64 B", "bulk string of 16 KiB", "array of 100 × 32 B", "nested map"}
	var cases []Case
	for i, reply := range codec.Replies() {
		c := Case{
			Group: "codec", Name: "codec-" + reply.Name, Title: "Decoding: " + titles[i],
			Place: Split, NoServer: true, Callers: 1,
			Length:  measure.Length{Warm: 10 * time.Millisecond, For: 80 * time.Millisecond},
			Metrics: []Metric{lower(Nanoseconds), lower(Allocs), lower(Bytes)},
			Numbers: general,
		}
		for _, d := range decoders {
			if d.d(reply.Name, nil) != nil {
				c.Contenders = append(c.Contenders, Contender{Name: d.name, Kind: d.kind, Work: codec.Work(d.d, reply)})
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// library is a client with the numbers of callers that it is measured with.
type library struct {
	name    string
	kind    Kind
	open    clients.Open
	noBatch bool
	alone   bool // makes sense with a single caller
}

var libraries = []library{
	{"lockwire", Ours, clients.Lockwire, false, true},
	{"go-redis", Peer, clients.GoRedis, false, true},
	{"go-redis autopipeline", Peer, clients.GoRedisAutopipe, false, true},
	{"rueidis", Peer, clients.Rueidis, false, true},
	{"rueidis 20 µs", Peer, clients.RueidisDelay, false, false},
	{"redigo", Peer, clients.Redigo, false, true},
	{"radix", Peer, clients.Radix, false, true},
	{"raw", Floor, clients.Raw, false, true},
	{"mux", Floor, clients.Mux, true, false},
	{"4 muxes", Floor, clients.Mux4, true, false},
}

// clientCase returns a job with so many callers.
func clientCase(job clients.Job, callers int, unix bool) Case {
	network, place := "tcp", Split
	if unix {
		network = "unix"
	}
	if callers == 1 {
		place = SameCPU
	}
	names := map[clients.Job]string{
		clients.Get: "GET 64 B", clients.Set: "SET 64 B", clients.Eval: "EVALSHA",
		clients.Script: "the library's script helper", clients.Batch: "batches of 100 GETs",
	}
	c := Case{
		Group: "clients", Name: fmt.Sprintf("%s-%s-%d", job, network, callers),
		Title: fmt.Sprintf("%s, %s, %s", names[job], network, counted(callers, "caller")),
		Place: place, Unix: unix, Callers: callers,
		Length:  measure.Length{Warm: 40 * time.Millisecond, For: 200 * time.Millisecond},
		Metrics: clientMetric, Numbers: client,
	}
	for _, l := range libraries {
		if callers == 1 && !l.alone || job == clients.Batch && l.noBatch {
			continue
		}
		// The floors have no helper for scripts: theirs is EVALSHA.
		c.Contenders = append(c.Contenders, Contender{Name: l.name, Kind: l.kind, Work: clients.Work(l.open, job, callers)})
	}
	return c
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

func clientCases() []Case {
	var cases []Case
	for _, unix := range []bool{false, true} {
		for _, job := range []clients.Job{clients.Get, clients.Set, clients.Eval} {
			for _, callers := range []int{1, 8, 64, 512} {
				cases = append(cases, clientCase(job, callers, unix))
			}
		}
	}
	for _, callers := range []int{1, 8} {
		cases = append(cases, clientCase(clients.Batch, callers, false))
	}
	for _, callers := range []int{1, 64} {
		cases = append(cases, clientCase(clients.Script, callers, false))
	}
	return cases
}

func subscribeCases() []Case {
	return []Case{{
		Group: "subscriptions", Name: "fan-in",
		Title: fmt.Sprintf("%d messages/s to %d subscriptions", fanin.Rate, fanin.Subscriptions),
		Place: Split, Procs: 2, Callers: fanin.Subscriptions,
		Length: measure.Length{For: time.Second},
		Metrics: []Metric{lower(ClientCPU), lower(P50), lower(P99), {Name: OpsPerSecond}, {Name: "delivered %"},
			lower(ServerCPU), lower(Allocs), lower(Bytes), lower("connections")},
		Numbers: func(o Outcome) map[string]float64 {
			numbers := general(o)
			numbers["connections"] = float64(o.Server.Clients)
			return numbers
		},
		Contenders: []Contender{
			{Name: "lockwire", Kind: Ours, Work: fanin.Work(fanin.Lockwire)},
			{Name: "go-redis", Kind: Peer, Work: fanin.Work(fanin.GoRedis)},
			{Name: "rueidis", Kind: Peer, Work: fanin.Work(fanin.Rueidis)},
			{Name: "redigo", Kind: Peer, Work: fanin.Work(fanin.Redigo)},
			{Name: "radix", Kind: Peer, Work: fanin.Work(fanin.Radix)},
			{Name: "one reader", Kind: Floor, Work: fanin.Work(fanin.Floor)},
		},
	}}
}
