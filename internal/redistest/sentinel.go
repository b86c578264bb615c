package redistest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

const (
	// SentinelMaster is the sentinels' name of the master.
	SentinelMaster = "prime"

	sentinelServers = 3
	sentinelCount   = 3

	// downAfter is the silence after which a sentinel takes a server for down. A server held up by a busy machine for seconds
	// must not count as down.
	downAfter = 6 * time.Second

	// failoverAfter is the same while a test waits for another master.
	failoverAfter = time.Second

	// failoverTimeout is how long a part of a failover may take; half of the time before another one is tried.
	failoverTimeout = 3 * time.Second
)

// Sentinels are three sentinels, a master and its two replicas. Two sentinels replace a master after a long silence. Many
// goroutines may call the methods at once, except for Failover and AwaitMaster. A method that cannot do its work fails the
// test, as with Server.
type Sentinels struct {
	t         testing.TB
	opts      Options
	protocol  int
	servers   []*Server
	sentinels []*Server
	forced    time.Time // the time of the failover for which AwaitMaster waits
}

// StartSentinels starts servers and sentinels that are killed at the end of the test. It returns when the replicas follow the
// master and all sentinels know of all servers and sentinels. The options are for each server; the sentinels have no password.
// Without a program to start, StartSentinels does as Start does.
func StartSentinels(t testing.TB, opts Options) *Sentinels {
	t.Helper()
	if opts.Binary == (Binary{}) {
		opts.Binary = binaries(t)[0]
	}
	s := &Sentinels{t: t, opts: opts}
	opts.lines = [][]string{
		{"repl-diskless-sync", "yes"}, {"repl-diskless-sync-delay", "0"}, {"repl-ping-replica-period", "1"},
	}
	if opts.Password != "" {
		opts.lines = append(opts.lines, []string{"masterauth", opts.Password})
	}
	for range sentinelServers {
		s.servers = append(s.servers, Start(t, opts))
	}
	for _, replica := range s.servers[1:] {
		replica.Do("REPLICAOF", "127.0.0.1", s.servers[0].port)
	}
	// A sentinel that misses a server at first may see the server ten seconds later.
	s.await("replicas", func() error { return s.unfollowed(s.servers[0]) })
	watch := Options{Binary: opts.Binary, Args: []string{"--sentinel"}, lines: s.watchLines()}
	for range sentinelCount {
		s.sentinels = append(s.sentinels, Start(t, watch))
	}
	for _, sentinel := range s.sentinels {
		sentinel.hurry()
	}
	s.AwaitHealthy()
	return s
}

// RunSentinels runs fn as a subtest for each program and for RESP2 and RESP3, with new sentinels and servers. Their Config asks
// for proto too.
func RunSentinels(t *testing.T, opts Options, fn func(t *testing.T, s *Sentinels, proto int)) {
	t.Helper()
	for _, bin := range binaries(t) {
		for _, proto := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/resp%d", bin, proto), func(t *testing.T) {
				opts.Binary = bin
				s := StartSentinels(t, opts)
				s.protocol = proto
				fn(t, s, proto)
			})
		}
	}
}

// watchLines is the configuration of a sentinel about its master.
func (s *Sentinels) watchLines() [][]string {
	set := func(name string, value any) []string {
		return []string{"sentinel", name, SentinelMaster, fmt.Sprint(value)}
	}
	lines := [][]string{
		{"sentinel", "monitor", SentinelMaster, "127.0.0.1", strconv.Itoa(s.servers[0].port), "2"},
		set("down-after-milliseconds", downAfter.Milliseconds()),
		set("failover-timeout", failoverTimeout.Milliseconds()),
		set("parallel-syncs", sentinelServers),
	}
	if s.opts.Password != "" {
		lines = append(lines, set("auth-pass", s.opts.Password))
	}
	return lines
}

// hurry shortens a sentinel's pauses, made for larger networks, as far as the version allows.
func (s *Server) hurry() {
	if !s.AtLeast(7, 0) {
		return
	}
	_, err := s.Try("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 250, "INFO-PERIOD", 500, "ASK-PERIOD", 250)
	s.check(err)
}

// Config connects to the master as the user "default", by way of the sentinels.
func (s *Sentinels) Config() conn.Config {
	cfg := s.servers[0].Config()
	cfg.Addr, cfg.Protocol = "", s.protocol
	cfg.Sentinel = conn.Sentinel{Master: SentinelMaster}
	for _, sentinel := range s.sentinels {
		cfg.Sentinel.Addrs = append(cfg.Sentinel.Addrs, sentinel.Addr())
	}
	return cfg
}

// Servers are the servers, the first master first.
func (s *Sentinels) Servers() []*Server { return s.servers }

// Sentinels are the sentinels.
func (s *Sentinels) Sentinels() []*Server { return s.sentinels }

// Master is the master according to the first sentinel with an answer.
func (s *Sentinels) Master() *Server {
	s.t.Helper()
	for _, sentinel := range s.sentinels {
		if sentinel.up() {
			if m, err := s.masterOf(sentinel); err == nil {
				return m
			}
		}
	}
	s.t.Errorf("redistest: no sentinel names a master")
	return s.servers[0]
}

// masterOf is the master according to a sentinel.
func (s *Sentinels) masterOf(sentinel *Server) (*Server, error) {
	v, err := sentinel.Try("SENTINEL", "get-master-addr-by-name", SentinelMaster)
	if err != nil {
		return nil, err
	}
	host, _ := v.At(0).Text()
	port, _ := v.At(1).Text()
	for _, server := range s.servers {
		if server.Addr() == net.JoinHostPort(host, port) {
			return server, nil
		}
	}
	return nil, fmt.Errorf("a sentinel names %s:%s, which is none of the servers", host, port)
}

// Failover makes a sentinel replace a healthy master. It waits only until no sentinel would elect a server without the master's data.
func (s *Sentinels) Failover() {
	s.t.Helper()
	s.await("replica to elect", s.unelectable)
	if err := s.failover(); err != nil {
		s.t.Errorf("redistest: failover: %v", err)
	}
	s.forced = time.Now()
}

func (s *Sentinels) failover() error {
	err := errors.New("no sentinel is up")
	for _, sentinel := range s.sentinels {
		if !sentinel.up() {
			continue
		}
		if _, err = sentinel.Try("SENTINEL", "FAILOVER", SentinelMaster); err == nil {
			return nil
		}
	}
	return err
}

// failoverAgain repeats a requested failover without effect: sentinels give up a failover after failoverTimeout, and try again
// only if the master is down.
func (s *Sentinels) failoverAgain() {
	if s.forced.IsZero() || time.Since(s.forced) < 3*failoverTimeout {
		return
	}
	s.forced = time.Now()
	_ = s.failover() // refused during a failover
}

// AwaitMaster returns when all running sentinels agree on a master except old, and the master says "master" itself. Only
// meanwhile a server counts as down after a second of silence.
func (s *Sentinels) AwaitMaster(old *Server) *Server {
	s.t.Helper()
	s.setDownAfter(failoverAfter)
	defer s.setDownAfter(downAfter)
	var found *Server
	s.await("another master", func() error {
		var err error
		found, err = s.agreed()
		if err == nil && found == old {
			s.failoverAgain()
			err = errors.New("it is still the same")
		}
		return err
	})
	s.forced = time.Time{}
	return found
}

// setDownAfter sets after how long a silent server counts as down, at the sentinels that run.
func (s *Sentinels) setDownAfter(d time.Duration) {
	for _, sentinel := range s.sentinels {
		if sentinel.up() {
			sentinel.Do("SENTINEL", "SET", SentinelMaster, "down-after-milliseconds", d.Milliseconds())
		}
	}
}

// AwaitHealthy returns when all running servers and sentinels are as in the beginning: the replicas follow the master, and all
// sentinels know of all servers and sentinels.
func (s *Sentinels) AwaitHealthy() {
	s.t.Helper()
	s.await("health", s.sick)
}

// await asks until wrong returns nil.
func (s *Sentinels) await(what string, wrong func() error) {
	s.t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := wrong()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			s.t.Fatalf("redistest: no %s within %v: %v", what, Patience, err)
		}
	}
}

// agreed is the master named by all sentinels and by itself.
func (s *Sentinels) agreed() (*Server, error) {
	var master *Server
	for _, sentinel := range s.sentinels {
		if !sentinel.up() {
			continue
		}
		m, err := s.masterOf(sentinel)
		switch {
		case err != nil:
			return nil, err
		case master != nil && master != m:
			return nil, errors.New("sentinels disagree")
		}
		master = m
	}
	if master == nil || !master.up() {
		return nil, errors.New("no sentinel names a server that is up")
	}
	if role, err := master.Try("ROLE"); err != nil {
		return nil, err
	} else if text, _ := role.At(0).Text(); text != "master" {
		return nil, errors.New("it is a replica")
	}
	return master, nil
}

// sick describes the first deviation from a healthy state.
func (s *Sentinels) sick() error {
	master, err := s.agreed()
	if err != nil {
		return err
	}
	replicas, sentinels := -1, -1
	for _, server := range s.servers {
		if server.up() {
			replicas++
		}
	}
	for _, sentinel := range s.sentinels {
		if sentinel.up() {
			sentinels++
		}
	}
	if err := s.unfollowed(master); err != nil {
		return err
	}
	for _, sentinel := range s.sentinels {
		if !sentinel.up() {
			continue
		}
		if err := sentinel.knows(replicas, sentinels); err != nil {
			return err
		}
	}
	return nil
}

// unfollowed is the reason why a running server does not follow master.
func (s *Sentinels) unfollowed(master *Server) error {
	for _, server := range s.servers {
		if server == master || !server.up() {
			continue
		}
		role, err := server.Try("ROLE")
		if err != nil {
			return err
		}
		port, _ := role.At(2).Int()
		state, _ := role.At(3).Text()
		if int(port) != master.port || state != "connected" {
			return fmt.Errorf("%s does not follow the master", server.Addr())
		}
	}
	return nil
}

// unelectable is the reason why an election may fall on a server without the master's data: a sentinel has not yet seen a replica
// follow the master, or knows an offset of a server, a former master for example, that does not follow.
func (s *Sentinels) unelectable() error {
	master, err := s.agreed()
	if err != nil {
		return err
	}
	for _, sentinel := range s.sentinels {
		if !sentinel.up() {
			continue
		}
		list, err := sentinel.Try("SENTINEL", "replicas", SentinelMaster)
		if err != nil {
			return err
		}
		following := 0
		for one := range list.All() {
			switch {
			case strings.Contains(field(one, "flags"), "down"):
			case field(one, "master-link-status") == "ok" && field(one, "master-port") == strconv.Itoa(master.port):
				following++
			case field(one, "slave-repl-offset") != "0":
				return fmt.Errorf("%s may be elected, and does not follow the master", field(one, "name"))
			}
		}
		if following == 0 {
			return fmt.Errorf("a sentinel has seen no replica follow %s", master.Addr())
		}
	}
	return nil
}

// knows checks that a sentinel knows of enough healthy peers, and is not busy with a failover.
func (s *Server) knows(replicas, sentinels int) error {
	list, err := s.Try("SENTINEL", "master", SentinelMaster)
	if err != nil {
		return err
	}
	if flags := field(list, "flags"); flags != "master" {
		return fmt.Errorf("a sentinel calls the master %s", flags)
	}
	for what, count := range map[string]int{"replicas": replicas, "sentinels": sentinels} {
		list, err := s.Try("SENTINEL", what, SentinelMaster)
		if err != nil {
			return err
		}
		n := 0
		for one := range list.All() {
			if flags := field(one, "flags"); !strings.Contains(flags, "s_down") && !strings.Contains(flags, "disconnected") {
				n++
			}
		}
		if n < count {
			return fmt.Errorf("a sentinel knows %d of %d %s", n, count, what)
		}
	}
	return nil
}

// field is a value in a list of names and values.
func field(v resp.Value, name string) string {
	pairs, _ := v.Pairs()
	for key, value := range pairs {
		if text, err := key.Text(); err == nil && text == name {
			text, _ = value.Text()
			return text
		}
	}
	return ""
}
