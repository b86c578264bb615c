package conn_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// Addresses of a fleet.
const (
	serverA, serverB, serverC       = "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"
	sentinelA, sentinelB, sentinelC = "10.1.0.1:26379", "10.1.0.2:26379", "10.1.0.3:26379"
)

// fleet is three servers, one of them the master, and three sentinels, each with its own view.
type fleet struct {
	t     testing.TB
	nodes map[string]*fakeredis.Server

	mu       sync.Mutex
	master   map[string]bool  // the role that each server reports
	views    map[string]*view // the views of the sentinels
	dials    []fleetDial      // dials to all nodes
	silent   map[string]bool  // sentinels without epochs
	replicas []string         // a sentinel's description of each replica
	minority bool             // the sentinels do not reach a majority
	flags    string           // of the master, as the sentinels see it
}

// view is a sentinel's answer.
type view struct {
	master string // "" for null
	epoch  int
	others []string
}

type fleetDial struct {
	at   time.Time
	addr string
}

// inFleet runs fn in a bubble with a fleet, whose master is serverA.
func inFleet(t *testing.T, fn func(t *testing.T, f *fleet)) {
	t.Helper()
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprintf("resp%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				fn(t, f)
				for _, srv := range f.nodes {
					srv.Close()
				}
			})
		})
	}
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{
		t: t, nodes: map[string]*fakeredis.Server{}, master: map[string]bool{serverA: true},
		views: map[string]*view{}, silent: map[string]bool{},
	}
	for _, addr := range []string{serverA, serverB, serverC} {
		srv := fakeredis.New()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return f.serve(addr, cmd) })
		f.nodes[addr] = srv
	}
	for _, addr := range []string{sentinelA, sentinelB, sentinelC} {
		srv := fakeredis.New()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action { return f.answer(addr, cmd) })
		f.nodes[addr] = srv
		f.views[addr] = &view{master: serverA, epoch: 1}
	}
	return f
}

// serve is a server that refuses writes unless it is a master.
func (f *fleet) serve(addr string, cmd fakeredis.Cmd) fakeredis.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.master[addr]:
	case cmd.Name == "ROLE":
		return fakeredis.Reply("*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:6379\r\n$9\r\nconnected\r\n:1\r\n")
	case cmd.Name == "SET" || cmd.Name == "INCR":
		return fakeredis.Reply("-READONLY You can't write against a read only replica.\r\n")
	}
	return fakeredis.Run()
}

// answer is a sentinel that supports SENTINEL and the commands for connections and channels.
func (f *fleet) answer(addr string, cmd fakeredis.Cmd) fakeredis.Action {
	if cmd.Name != "SENTINEL" {
		return fakeredis.Run()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.views[addr]
	if cmd.Args[2] != "prime" || v.master == "" {
		return fakeredis.Reply("*-1\r\n")
	}
	host, port, _ := net.SplitHostPort(v.master)
	switch strings.ToLower(cmd.Args[1]) {
	case "get-master-addr-by-name":
		return fakeredis.Reply(bulks(host, port))
	case "master":
		if f.silent[addr] {
			return fakeredis.Reply("-ERR unknown subcommand\r\n")
		}
		return fakeredis.Reply(bulks("name", "prime", "ip", host, "port", port, "flags", f.flags, "config-epoch", fmt.Sprint(v.epoch)))
	case "sentinels":
		reply := fmt.Sprintf("*%d\r\n", len(v.others))
		for _, other := range v.others {
			host, port, _ := net.SplitHostPort(other)
			reply += bulks("name", "x", "ip", host, "port", port)
		}
		return fakeredis.Reply(reply)
	case "replicas":
		return fakeredis.Reply(fmt.Sprintf("*%d\r\n", len(f.replicas)) + strings.Join(f.replicas, ""))
	case "ckquorum":
		if f.minority {
			return fakeredis.Reply("-NOQUORUM 1 usable Sentinels.\r\n")
		}
		return fakeredis.Reply("+OK 3 usable Sentinels.\r\n")
	}
	return fakeredis.Run()
}

func bulks(words ...string) string {
	b := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		b += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// Dial connects to the node at addr.
func (f *fleet) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, fleetDial{time.Now(), addr})
	f.mu.Unlock()
	if srv := f.nodes[addr]; srv != nil {
		return srv.Dial(ctx, network, addr)
	}
	return nil, syscall.ECONNREFUSED
}

// config returns a Config with the given sentinels, by default all three.
func (f *fleet) config(sentinels ...string) conn.Config {
	if len(sentinels) == 0 {
		sentinels = []string{sentinelA, sentinelB, sentinelC}
	}
	proto := 3
	if strings.HasSuffix(f.t.Name(), "resp2") {
		proto = 2
	}
	return conn.Config{
		Protocol: proto, Dial: f.Dial,
		Sentinel: conn.Sentinel{Master: "prime", Addrs: sentinels},
	}
}

// promote makes another server the master and the others replicas. The sentinels keep their views.
func (f *fleet) promote(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.master)
	f.master[addr] = true
}

// tell changes the view of the named sentinels, or of all sentinels.
func (f *fleet) tell(master string, epoch int, sentinels ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(sentinels) == 0 {
		sentinels = []string{sentinelA, sentinelB, sentinelC}
	}
	for _, s := range sentinels {
		f.views[s].master, f.views[s].epoch = master, epoch
	}
}

// introduce sets the other sentinels named by a sentinel.
func (f *fleet) introduce(sentinel string, others ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views[sentinel].others = others
}

// forget clears the record of dials.
func (f *fleet) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials = nil
}

// announce publishes a switch on all sentinels.
func (f *fleet) announce(from, to string) {
	a, b, _ := strings.Cut(from, ":")
	c, d, _ := strings.Cut(to, ":")
	for _, s := range []string{sentinelA, sentinelB, sentinelC} {
		f.nodes[s].Do("PUBLISH", "+switch-master", strings.Join([]string{"prime", a, b, c, d}, " "))
	}
}

// dialled returns the times of dials to the given nodes.
func (f *fleet) dialled(addrs ...string) (times []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.dials {
		for _, addr := range addrs {
			if d.addr == addr {
				times = append(times, d.at)
			}
		}
	}
	return times
}

// densest returns the largest number of times within a second.
func densest(times []time.Time) (most int) {
	for i := range times {
		n := 0
		for _, t := range times[i:] {
			if t.Sub(times[i]) < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// holds reports whether a server's key k has the value.
func (f *fleet) holds(addr, value string) bool { return f.nodes[addr].Do("GET", "k") == any(value) }
