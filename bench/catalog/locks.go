package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/bench/locks"
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/scale"
)

// locker is a contender with a lock.
type locker struct {
	name  string
	kind  Kind
	open  locks.Open
	etcd  bool
	sends []string
	own   bool // takes part with private names
	poll  bool // takes part where the lock is contended for
}

var redsyncSends = []string{"set"}

func lockers() []locker {
	list := []locker{
		{"lockwire", Ours, locks.Lockwire, false, nil, true, true},
		{"lockwire without hand-over", "variant", locks.LockwireApart, false, nil, false, true},
		{"lockwire with Owners", "variant", locks.LockwireOwners, false, nil, false, false},
		{"redsync on go-redis", Peer, locks.RedsyncGoRedis, false, redsyncSends, true, true},
		{"redsync on redigo", Peer, locks.RedsyncRedigo, false, redsyncSends, true, true},
		{"redislock 10 ms", Peer, locks.Redislock(10 * time.Millisecond), false, nil, true, true},
		{"redislock 1 ms", Peer, locks.Redislock(time.Millisecond), false, nil, false, true},
		{"rueidislock", Peer, locks.Rueidislock, false, nil, true, true},
		{"rueidislock majority 1", Peer, locks.RueidislockOne, false, nil, true, true},
		{"etcd", Peer, locks.Etcd, true, nil, true, true},
		{"SET NX", Floor, locks.SetDelete, false, []string{"set"}, true, true},
		{"Redisson by hand", Floor, locks.Redisson, false, nil, true, true},
		{"Redisson over a mux", Floor, locks.RedissonMux, false, nil, true, false},
		{"BLPOP", Floor, locks.Blpop, false, []string{"blpop", "rpush"}, false, true},
	}
	if locks.Etcd == nil {
		list = slices.DeleteFunc(list, func(l locker) bool { return l.etcd })
	}
	return list
}

// ownCase is a case of callers that lock and unlock private names, described by what, for a length of time.
func ownCase(name, what string, callers int, long time.Duration) Case {
	c := Case{
		Group: "locks", Name: fmt.Sprint(name, callers),
		Title: fmt.Sprintf("%s, %s on names of their own", what, counted(callers, "caller")),
		Place: Split, Callers: callers,
		Length:  measure.Length{Warm: 100 * time.Millisecond, For: long},
		Metrics: lockMetric, Numbers: locked,
	}
	if callers == 1 {
		c.Place = SameCPU
	}
	return c
}

func lockCases() []Case {
	var cases []Case
	for _, callers := range []int{1, 8, 64} {
		c := ownCase("lock-own-", "Lock and unlock", callers, 400*time.Millisecond)
		for _, l := range lockers() {
			if l.own {
				c.Contenders = append(c.Contenders, l.contender(locks.OwnNames(l.open, callers)))
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// kindCases have a case for every kind of lock, a pair at a time on private names.
func kindCases() []Case {
	var cases []Case
	for _, callers := range []int{1, 64} {
		c := ownCase("kinds-", "Lock and unlock by every kind", callers, 300*time.Millisecond)
		for i, k := range locks.Kinds() {
			c.Contenders = append(c.Contenders, Contender{Name: k.Name, Kind: kindOf(i), Work: locks.OwnNames(k.Open, callers)})
		}
		cases = append(cases, c)
	}
	return cases
}

// redlockers are contenders with a lock on a majority of several servers.
func redlockers() []locker {
	return []locker{
		{"lockwire", Ours, locks.Redlock, false, nil, true, true},
		{"redsync on go-redis", Peer, locks.RedsyncGoRedis, false, redsyncSends, true, true},
	}
}

// redlockCases have three servers.
func redlockCases() []Case {
	const servers, hold = 3, 5 * time.Millisecond
	var cases []Case
	for _, callers := range []int{1, 8} {
		c := ownCase("redlock-own-", "Lock and unlock on a majority of 3 servers", callers, 400*time.Millisecond)
		for _, l := range redlockers() {
			c.Contenders = append(c.Contenders, l.contender(locks.OwnNames(l.open, callers)))
		}
		cases = append(cases, c)
	}
	contest := locks.Contest{Callers: 25, Apart: true, Hold: hold}
	herd := group{
		name:  "redlock-herd-100",
		title: "One lock on a majority of 3 servers, 100 clients: 4 processes × 25, connections of their own, held for 5 ms",
		procs: 4, contest: contest, length: 300 * hold, warm: 200 * time.Millisecond,
		first: OpsPerSecond, shows: []string{HeldShare}, only: []string{},
	}.make()
	for _, l := range redlockers() {
		herd.Contenders = append(herd.Contenders, l.contender(locks.Contended(l.open, contest)))
	}
	cases = append(cases, herd)
	for i := range cases {
		cases[i].Servers = servers
	}
	return cases
}

// kindOf is the part that the i-th kind of lock has in a case of several.
func kindOf(i int) Kind {
	if i == 0 {
		return Ours
	}
	return "variant"
}

func (l locker) contender(w measure.Work) Contender {
	return Contender{Name: l.name, Kind: l.kind, Work: w, Etcd: l.etcd, Sends: l.sends}
}

var contendedMetric = []Metric{opsPerSecond, {Name: Handoffs}, lower(HandoffP50), lower(HandoffP99),
	lower("release to next p50 µs"), lower("release to next p99 µs"), lower("wait p50 ms"), lower("wait max ms"),
	lower(Sent), lower("commands with those in scripts/op"), lower(ServerCPU), lower(ClientCPU),
	lower("most of a caller"), {Name: "least of a caller"}, lower("starved"), lower("callers stuck"), {Name: Fairness}, {Name: FairnessProc},
	lower(Overlaps)}

func contendedCases() []Case {
	var cases []Case
	add := func(name, title string, procs int, contest locks.Contest, length time.Duration, first string) {
		c := Case{
			Group: "contended", Name: name, Title: title,
			Place: Split, Procs: procs, Callers: contest.Callers,
			Length:  measure.Length{Warm: 300 * time.Millisecond, For: length},
			Metrics: leading(first, contendedMetric), Numbers: contended,
		}
		for _, l := range lockers() {
			if l.poll {
				c.Contenders = append(c.Contenders, l.contender(locks.Contended(l.open, contest)))
			}
		}
		cases = append(cases, c)
	}
	for _, hold := range []time.Duration{0, 50 * time.Millisecond} {
		for _, who := range []struct{ procs, callers int }{{1, 10}, {1, 100}, {4, 25}} {
			name := fmt.Sprintf("contended-%dx%d", who.procs, who.callers)
			title := fmt.Sprintf("One lock, %s × %d callers", processes(who.procs), who.callers)
			length, first := 800*time.Millisecond, OpsPerSecond
			if hold > 0 {
				name += "-hold"
				title += ", held for 50 ms"
				length, first = 1200*time.Millisecond, HandoffP50 // nobody can acquire more than 20 times a second
			}
			add(name, title, who.procs, locks.Contest{Callers: who.callers, Hold: hold}, length, first)
		}
	}
	cases = slices.Concat(cases, herdCases(), distantCases(), slowCases(), waitingCases())
	// More than a thousand hand-overs, so that the 99th percentile has ten samples above.
	add("notice", "One waiter notices the release: 2 processes × 1 caller, held for 4 ms, pause of 2 ms", 2,
		locks.Contest{Callers: 1, Hold: 4 * time.Millisecond, Pause: 2 * time.Millisecond}, 6*time.Second, HandoffP50)
	return cases
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprint(n, " processes")
}

// leading puts the metric with a name in front.
func leading(name string, list []Metric) []Metric {
	var front, rest []Metric
	for _, m := range list {
		if m.Name == name {
			front = append(front, m)
		} else {
			rest = append(rest, m)
		}
	}
	return append(front, rest...)
}

// The sizes of the cases of scale.
const (
	Leases  = 100000
	Waiters = 10000
)

func scaleCases() []Case {
	common := []Metric{lower("client CPU %"), lower("server CPU %"), lower("commands sent/s"), lower("connections"), {Name: "count"}}
	return []Case{{
		Group: "scale", Name: "scale-leases", Title: fmt.Sprint(Leases, " leases under one watchdog"),
		Place: Split, Length: measure.Length{For: 12 * time.Second},
		Metrics: append(common[:len(common):len(common)],
			lower("late by its own count %"), lower("late by PTTL %"), lower("lost")),
		Numbers:    scaled,
		Contenders: []Contender{{Name: "lockwire", Kind: Ours, Work: scale.Leases(Leases)}},
	}, {
		Group: "scale", Name: "scale-waiters", Title: fmt.Sprintf("%d callers waiting on %d names", Waiters, Waiters),
		Place: Split, Length: measure.Length{For: 3 * time.Second},
		Metrics:    append(common[:len(common):len(common)], lower("KiB per waiter")),
		Numbers:    scaled,
		Contenders: []Contender{{Name: "lockwire", Kind: Ours, Work: scale.Waiters(Waiters)}},
	}}
}
