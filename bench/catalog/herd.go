package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockwire/lockwire/bench/locks"
	"github.com/lockwire/lockwire/bench/measure"
)

// group is a case of processes in contention for a single lock.
type group struct {
	name, title string
	procs       int
	contest     locks.Contest
	roundTrip   time.Duration // more than the others', of the last far processes
	far         int
	length      time.Duration
	warm        time.Duration // 0: 300 ms
	first       string        // the deciding number
	shows       []string      // numbers of only this case
	only        []string      // contenders; nil: all
}

func (g group) make() Case {
	c := Case{
		Group: "contended", Name: g.name, Title: g.title,
		Place: Split, Procs: g.procs, Callers: g.contest.Callers, RoundTrip: g.roundTrip, Far: g.far,
		Length:  measure.Length{Warm: g.warm, For: g.length},
		Numbers: contended,
	}
	if c.Length.Warm == 0 {
		c.Length.Warm = 300 * time.Millisecond
	}
	metrics := slices.Clone(contendedMetric)
	for _, name := range g.shows {
		metrics = append(metrics, Metric{Name: name})
	}
	c.Metrics = leading(g.first, metrics)
	for _, l := range lockers() {
		if g.only == nil && l.poll || slices.Contains(g.only, l.name) {
			c.Contenders = append(c.Contenders, l.contender(locks.Contended(l.open, g.contest)))
		}
	}
	return c
}

// shares names the shares of so many processes.
func shares(procs int) (names []string) {
	for i := range procs {
		names = append(names, shareOf(i))
	}
	return names
}

// Contenders with a way of waiting in common use, and the same libraries with further settings.
var waysToWait = []string{"lockwire", "lockwire without hand-over", "redislock 10 ms", "rueidislock majority 1", "Redisson by hand", "BLPOP"}

// herdCases have many clients, or unequal clients.
func herdCases() []Case {
	const procs = 4
	var cases []Case
	for _, each := range []int{25, 250} {
		const hold = 5 * time.Millisecond
		n := procs * each
		cases = append(cases, group{
			name:    fmt.Sprint("herd-", n),
			title:   fmt.Sprintf("One lock, %d clients: %d processes × %d, connections of their own, held for 5 ms", n, procs, each),
			procs:   procs,
			contest: locks.Contest{Callers: each, Apart: true, Hold: hold},
			length:  time.Duration(3*n) * hold, // three turns for each, if nothing were lost
			warm:    time.Duration(n) * 2 * time.Millisecond,
			first:   OpsPerSecond, shows: []string{HeldShare}, only: waysToWait,
		}.make())
	}
	const further = 500 * time.Microsecond
	return append(cases, group{
		name:    "far-4x10",
		title:   "One lock, 4 processes × 10 callers, held for 1 ms; processes 3 and 4 have a round trip of 0.5 ms more",
		procs:   procs,
		contest: locks.Contest{Callers: 10, Hold: time.Millisecond}, roundTrip: further, far: 2,
		length: 2500 * time.Millisecond, first: OpsPerSecond, shows: shares(procs), only: waysToWait,
	}.make())
}

// distantCases have a round trip of 1 ms to the server for all.
func distantCases() []Case {
	const away = time.Millisecond
	cases := []Case{group{
		name:  "handover-rtt-2x1",
		title: "One waiter notices the release: 2 processes × 1 caller, held for 4 ms, pause of 2 ms, round trip of 1 ms",
		procs: 2, contest: locks.Contest{Callers: 1, Hold: 4 * time.Millisecond, Pause: 2 * time.Millisecond}, roundTrip: away, far: 2,
		length: 3 * time.Second, first: HandoffP50, only: waysToWait,
	}.make()}
	for _, procs := range []int{1, 2} {
		cases = append(cases, group{
			name:  fmt.Sprintf("contended-rtt-%dx10", procs),
			title: fmt.Sprintf("One lock, %s × 10 callers, round trip of 1 ms", processes(procs)),
			procs: procs, contest: locks.Contest{Callers: 10}, roundTrip: away, far: procs,
			length: 1500 * time.Millisecond, first: OpsPerSecond, only: waysToWait,
		}.make())
	}
	return cases
}

// kindsThatWait are the kinds of lock for which a case of their own is worth its time.
func kindsThatWait() []locks.Kind {
	return slices.DeleteFunc(locks.Kinds(), func(k locks.Kind) bool {
		return !slices.ContainsFunc(locks.Protocols, func(p locks.Protocol) bool { return p.Name == k.Name })
	})
}

// waitingCases are those of other kinds of lock: many clients, and a slow client of Redisson's protocol beside others.
func waitingCases() []Case {
	const hold = 5 * time.Millisecond
	contest := locks.Contest{Callers: 25, Apart: true, Hold: hold}
	herd := group{
		name:    "herd-kinds",
		title:   "One lock of each kind, 100 clients: 4 processes × 25, connections of their own, held for 5 ms",
		procs:   4,
		contest: contest,
		length:  300 * hold, warm: 200 * time.Millisecond,
		first: Sent, shows: []string{HeldShare}, only: []string{},
	}.make()
	for i, k := range kindsThatWait() {
		herd.Contenders = append(herd.Contenders, Contender{Name: k.Name, Kind: kindOf(i), Work: locks.Contended(k.Open, contest)})
	}
	cases := []Case{herd}
	for _, others := range []int{1, 2} {
		contest := locks.Contest{Callers: 4, Hold: hold}
		slow := group{
			name: fmt.Sprint("slow-kinds-", others),
			title: fmt.Sprintf("One slow client of Redisson's protocol beside %s, 4 callers each, by kind, held for %v",
				counted(others, "other"), hold),
			procs: 1 + others, contest: contest, length: 3 * time.Second, first: FirstShare,
			shows: append([]string{FirstShare, HeldShare}, shares(1+others)...), only: []string{},
		}.make()
		for i, k := range kindsThatWait() {
			at := slices.IndexFunc(locks.Protocols, func(p locks.Protocol) bool { return p.Name == k.Name })
			x := Contender{Name: k.Name, Kind: kindOf(i)}
			x.Work = locks.Beside(locks.Contended(locks.SlowRedisson(locks.Protocols[at], 2*time.Millisecond), contest), locks.Contended(k.Open, contest))
			slow.Contenders = append(slow.Contenders, x)
		}
		cases = append(cases, slow)
	}
	return cases
}

// slowCases have a client with Redisson's protocol in the first process that pauses between a message and its next request,
// beside usual clients in further processes.
func slowCases() []Case {
	const late = 2 * time.Millisecond
	var cases []Case
	add := func(others, callers int, hold time.Duration) {
		contest := locks.Contest{Callers: callers, Hold: hold}
		c := group{
			name: fmt.Sprintf("slow-%dx%d-%d", others, callers, hold.Milliseconds()),
			title: fmt.Sprintf("One slow client of Redisson's protocol beside %s, %s each, held for %v",
				counted(others, "other"), counted(callers, "caller"), hold),
			procs: 1 + others, contest: contest, length: max(3*time.Second, 120*hold), first: FirstShare,
			shows: append([]string{FirstShare}, shares(1+others)...),
			only:  []string{"lockwire", "lockwire without hand-over", "lockwire with Owners", "Redisson by hand"},
		}.make()
		slow := locks.Contended(locks.SlowRedisson(locks.Protocols[0], late), contest)
		for i := range c.Contenders {
			c.Contenders[i].Work = locks.Beside(slow, c.Contenders[i].Work)
		}
		cases = append(cases, c)
	}
	for _, others := range []int{1, 2, 4} {
		add(others, 4, 5*time.Millisecond)
	}
	for _, hold := range []time.Duration{0, 50 * time.Millisecond} {
		add(1, 4, hold)
	}
	for _, hold := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		add(1, 1, hold)
	}
	return cases
}
