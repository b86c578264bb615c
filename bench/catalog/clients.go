package catalog

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/bench/clients"
	"github.com/lockwire/lockwire/bench/codec"
	"github.com/lockwire/lockwire/bench/fanin"
	"github.com/lockwire/lockwire/bench/measure"
)

// decoder reads replies, as values of any kind or as values of the user's type.
type decoder struct {
	name           string
	kind           Kind
	generic, typed codec.Decoder
}

var decoders = []decoder{
	{"lockwire", Ours, codec.Lockwire, codec.LockwireTyped},
	{"go-redis", Peer, codec.GoRedis, codec.GoRedisTyped},
	{"rueidis", Peer, codec.Rueidis, codec.RueidisTyped},
	{"redigo", Peer, codec.Redigo, nil},
	{"radix", Peer, codec.Radix, codec.RadixTyped},
	{"views", Floor, codec.Views, codec.Views},
}

// codecCases compare like with like: values for any reply, and values of the reply's type.
func codecCases() []Case {
	titles := []string{"+OK", "integer", "bulk string of 64 B", "bulk string of 16 KiB", "array of 100 × 32 B", "nested map"}
	var cases []Case
	for i, reply := range codec.Replies() {
		cases = append(cases, codecCase("codec-"+reply.Name, "Decoding: "+titles[i], reply, func(d decoder) codec.Decoder { return d.generic }))
		if reply.Name != "map" {
			cases = append(cases, codecCase("typed-"+reply.Name, "Decoding to its type: "+titles[i], reply, func(d decoder) codec.Decoder { return d.typed }))
		}
	}
	return cases
}

func codecCase(name, title string, reply codec.Reply, of func(decoder) codec.Decoder) Case {
	c := Case{
		Group: "codec", Name: name, Title: title,
		Place: Split, NoServer: true, Callers: 1,
		Length:  measure.Length{Warm: 10 * time.Millisecond, For: 80 * time.Millisecond},
		Metrics: []Metric{lower(Nanoseconds), lower(Allocs), lower(Bytes)},
		Numbers: general,
	}
	for _, d := range decoders {
		if read := of(d); read != nil && read(reply.Name, nil) != nil {
			c.Contenders = append(c.Contenders, Contender{Name: d.name, Kind: d.kind, Work: codec.Work(read, reply)})
		}
	}
	return c
}

// library is a client with the numbers of callers in its measurements.
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

// load is how a client is used.
type load struct {
	job       clients.Job
	how       string // a part of the case's name: its difference
	callers   int
	size      int   // of the value; 0: 64 B
	place     Place // "": a single caller on the server's CPU, several on a CPU apart
	unix, tls bool
	roundTrip time.Duration // more than in fact
}

var jobTitles = map[clients.Job]string{
	clients.Get: "GET", clients.Set: "SET", clients.Eval: "EVALSHA",
	clients.Script: "the library's script helper", clients.Batch: "batches of 100 GETs",
}

func (l load) title() string {
	what := jobTitles[l.job]
	switch {
	case l.size >= 1<<20:
		what += fmt.Sprintf(" %d MiB", l.size>>20)
	case l.size >= 1<<10:
		what += fmt.Sprintf(" %d KiB", l.size>>10)
	case l.job == clients.Get || l.job == clients.Set:
		what += " 64 B"
	}
	switch {
	case l.unix:
		what += ", unix"
	case l.tls:
		what += ", TLS"
	default:
		what += ", tcp"
	}
	if l.roundTrip > 0 {
		what += fmt.Sprintf(", round trip of %v", l.roundTrip)
	}
	return what + ", " + counted(l.callers, "caller")
}

// make returns the case. Several callers share few connections or none, as each library intends.
func (l load) make() Case {
	if l.place == "" && l.callers == 1 {
		l.place = SameCPU
	}
	c := Case{
		Group: "clients", Name: fmt.Sprintf("%s-%s-%d", l.job, l.how, l.callers), Title: l.title(),
		Place: cmp.Or(l.place, Split), Unix: l.unix, TLS: l.tls, Callers: l.callers, RoundTrip: l.roundTrip,
		Length:  measure.Length{Warm: 40 * time.Millisecond, For: 200 * time.Millisecond},
		Metrics: clientMetric, Numbers: client,
	}
	if l.roundTrip > 0 {
		c.Far = 1
	}
	if l.size > 0 || l.roundTrip > 0 || l.place != "" && l.place != SameCPU {
		c.Length.For = 400 * time.Millisecond
	}
	for _, x := range libraries {
		if l.callers == 1 && !x.alone || l.job == clients.Batch && x.noBatch {
			continue
		}
		// The floors have no helper for scripts: theirs is EVALSHA.
		work := clients.Work(x.open, l.job, l.callers, cmp.Or(l.size, 64))
		c.Contenders = append(c.Contenders, Contender{Name: x.name, Kind: x.kind, Work: work})
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
	add := func(l load, callers ...int) {
		for _, l.callers = range callers {
			cases = append(cases, l.make())
		}
	}
	both := []clients.Job{clients.Get, clients.Set}
	for _, unix := range []bool{false, true} {
		how := "tcp"
		if unix {
			how = "unix"
		}
		for _, job := range append(both, clients.Eval) {
			add(load{job: job, how: how, unix: unix}, 1, 8, 64, 512)
		}
	}
	add(load{job: clients.Batch, how: "tcp"}, 1, 8)
	add(load{job: clients.Script, how: "tcp"}, 1, 64)
	for _, job := range both {
		add(load{job: job, how: "16k", size: 16 << 10}, 1, 8)
		add(load{job: job, how: "1m", size: 1 << 20}, 1, 8)
		add(load{job: job, how: "both", place: Both}, 8, 64)
		add(load{job: job, how: "free", place: Free}, 8)
	}
	add(load{job: clients.Get, how: "tls", tls: true}, 1, 8, 64)
	add(load{job: clients.Get, how: "tls1m", tls: true, size: 1 << 20}, 8)
	add(load{job: clients.Get, how: "rtt", roundTrip: time.Millisecond}, 1, 8, 64)
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
