package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// openFleet opens a Pool on a fleet's master, and waits for its subscription to a sentinel.
func openFleet(t *testing.T, cfg conn.Config) *conn.Pool {
	t.Helper()
	p := openPool(t, cfg)
	synctest.Wait()
	return p
}

// lands writes a value, which must reach the server at addr at once.
func lands(t *testing.T, f *fleet, p *conn.Pool, addr, value string) {
	t.Helper()
	begin := time.Now()
	if _, err := p.Do(t.Context(), "SET", "k", value); err != nil {
		t.Errorf("SET %s = %v", value, err)
	}
	if !f.holds(addr, value) {
		t.Errorf("%s is not on %s", value, addr)
	}
	between(t, "SET "+value, time.Since(begin), 0, 100*time.Millisecond)
}

// TestSentinel: the Pool connects to the master named by the first sentinel.
func TestSentinel(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		lands(t, f, p, serverA, "one")
		for _, addr := range []string{serverB, serverC, sentinelB, sentinelC} {
			if n := len(f.dialled(addr)); n > 1 || n > 0 && !strings.HasPrefix(addr, "10.1") {
				t.Errorf("%s was dialled %d times", addr, n)
			}
		}
		if n := f.nodes[serverA].Count("ROLE"); n != 1 {
			t.Errorf("the master was asked %d times for its role", n)
		}
		for _, c := range append(f.nodes[sentinelA].Conns(), f.nodes[serverA].Conns()...) {
			if strings.HasSuffix(t.Name(), "resp2") != (c.Protocol == 2) {
				t.Errorf("%s: a connection speaks RESP%d", t.Name(), c.Protocol)
			}
		}
	})
}

// TestSentinelSilentOnes: the Pool goes on to the next sentinel after one that is silent, does not know the master,
// or is unreachable.
func TestSentinelSilentOnes(t *testing.T) {
	faults := map[string]func(f *fleet, addr string){
		"refused":     func(f *fleet, addr string) { f.nodes[addr].Refuse(true) },
		"unreachable": func(f *fleet, addr string) { f.nodes[addr].Unreachable(true) },
		"mute":        func(f *fleet, addr string) { f.nodes[addr].Mute(true) },
		"stopped":     func(f *fleet, addr string) { f.nodes[addr].Stall(true) },
		"null":        func(f *fleet, addr string) { f.tell("", 0, addr) },
		"nonsense":    func(f *fleet, addr string) { f.tell("no host:99999", 0, addr) },
		"no host":     func(f *fleet, addr string) { f.tell("user@host:6379", 0, addr) },
		"swallows":    func(f *fleet, addr string) { f.answers(addr, "SENTINEL", fakeredis.Swallow()) },
		"hangs up":    func(f *fleet, addr string) { f.answers(addr, "SENTINEL", fakeredis.Close()) },
		"forbids":     func(f *fleet, addr string) { f.answers(addr, "SENTINEL", fakeredis.Reply("-NOPERM no\r\n")) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				fault(f, sentinelA)
				fault(f, sentinelB)
				begin := time.Now()
				cfg := f.config()
				cfg.Sentinel.Timeout = 300 * time.Millisecond
				p := openFleet(t, cfg)
				defer p.Close()
				between(t, "connected", time.Since(begin), 0, 700*time.Millisecond)
				lands(t, f, p, serverA, "one")
				for _, addr := range []string{sentinelA, sentinelB} {
					f.nodes[addr].Mute(false)
					f.nodes[addr].Stall(false)
				}
			})
		})
	}
}

// TestSentinelForbidsToListen: the Pool listens to the next sentinel if one refuses the subscription.
func TestSentinelForbidsToListen(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.answers(sentinelA, "SUBSCRIBE", fakeredis.Reply("-NOPERM no\r\n"))
		cfg := f.config()
		cfg.Sentinel.PollInterval = -1
		p := openFleet(t, cfg)
		defer p.Close()
		time.Sleep(time.Minute)
		if n := f.nodes[sentinelA].Count("SUBSCRIBE"); n == 0 || n > 10 {
			t.Errorf("%d refused subscriptions in a minute, want a few", n)
		}
		f.promote(serverB)
		f.tell(serverB, 2)
		f.announce(serverA, serverB)
		time.Sleep(time.Second)
		if n := p.Stats().Switches; n != 1 {
			t.Errorf("%d switches a second after the announcement, want 1", n)
		}
		lands(t, f, p, serverB, "two")
	})
}

// TestSentinelsRefuse: without a reachable sentinel the Pool dials rarely, and not at all after the end of ctx. (B27)
func TestSentinelsRefuse(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		all := []string{sentinelA, sentinelB, sentinelC}
		for _, addr := range all {
			f.nodes[addr].Refuse(true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cfg := f.config()
		cfg.Retry = conn.Retry{Attempts: 1 << 20, Budget: -1}
		begin := time.Now()
		_, err := conn.Open(ctx, cfg)
		between(t, "gave up", time.Since(begin), 10*time.Second, 10*time.Second)
		checkDialError(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open = %v, want the end of ctx", err)
		}
		n := len(f.dialled(all...))
		if n < 9 || n > 100 || densest(f.dialled(all...)) > 20 {
			t.Errorf("%d dials in 10 s, %d in one second", n, densest(f.dialled(all...)))
		}
		time.Sleep(time.Minute)
		if more := len(f.dialled(all...)); more != n {
			t.Errorf("%d dials after the end", more-n)
		}
	})
}

// TestSentinelsVanish: sentinels and server disappear from a Pool in use. The Pool dials rarely despite many calls,
// and recovers when they return.
func TestSentinelsVanish(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		// A handshake that is cut off is tried once more beyond the limit. Hence no poll is due, and all nodes refuse
		// before the first connection ends.
		time.Sleep(time.Minute + time.Second/2)
		f.forget()
		for _, srv := range f.nodes {
			srv.Refuse(true)
		}
		for _, srv := range f.nodes {
			srv.KillConns(nil)
		}
		for range 8 {
			go func() {
				for range 10 {
					p.Do(t.Context(), "SET", "k", "v")
				}
			}()
		}
		time.Sleep(30 * time.Second)
		sentinels := f.dialled(sentinelA, sentinelB, sentinelC)
		servers := f.dialled(serverA, serverB, serverC)
		if densest(sentinels) > 20 || densest(servers) > 20 || len(sentinels) < 30 || len(servers) < 10 {
			t.Errorf("sentinels dialled %d times, %d in a second; servers %d and %d",
				len(sentinels), densest(sentinels), len(servers), densest(servers))
		}
		for _, srv := range f.nodes {
			srv.Refuse(false)
		}
		if _, err := p.Do(t.Context(), "SET", "k", "back"); err != nil {
			t.Errorf("SET when all are back = %v", err)
		}
		time.Sleep(30 * time.Second)
		f.promote(serverB)
		f.tell(serverB, 2)
		f.announce(serverA, serverB)
		time.Sleep(100 * time.Millisecond)
		lands(t, f, p, serverB, "two")
	})
}

// TestSentinelsGoneMasterThere: the Pool dials the last known master while no sentinel answers.
func TestSentinelsGoneMasterThere(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p := openFleet(t, f.config())
		defer p.Close()
		for _, addr := range []string{sentinelA, sentinelB, sentinelC} {
			f.nodes[addr].Refuse(true)
			f.nodes[addr].KillConns(nil)
		}
		f.nodes[serverA].KillConns(nil)
		synctest.Wait()
		lands(t, f, p, serverA, "one")
		f.promote(serverB) // for a moment only
		go func() {
			time.Sleep(time.Second)
			f.promote(serverA)
		}()
		if _, err := p.Do(t.Context(), "SET", "k", "two"); err != nil {
			t.Errorf("SET = %v", err)
		}
	})
}

// TestSentinelNamesReplica: the Pool uses an address only after ROLE replies master. (B28)
func TestSentinelNamesReplica(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.tell(serverB, 1, sentinelA)
		p := openFleet(t, f.config())
		defer p.Close()
		lands(t, f, p, serverA, "one")
		if n := f.nodes[serverB].Count("ROLE"); n != 1 {
			t.Errorf("the replica was asked %d times for its role, want once", n)
		}
		if n := f.nodes[serverB].Count("SET"); n > 0 {
			t.Errorf("the replica was sent %d SET", n)
		}
	})
}

// TestNoMasterAnywhere: all sentinels name a replica, and the error says so.
func TestNoMasterAnywhere(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.tell(serverB, 1)
		_, err := conn.Open(t.Context(), f.config())
		if err == nil || !strings.Contains(err.Error(), "not a master") || !strings.Contains(err.Error(), serverB) {
			t.Errorf("Open = %v", err)
		}
		checkDialError(t, err)
		f.tell("", 1)
		_, err = conn.Open(t.Context(), f.config())
		if err == nil || !strings.Contains(err.Error(), "no master of this name") {
			t.Errorf("Open = %v", err)
		}
		checkDialError(t, err)
	})
}

// TestOldAnswers: two sentinels are behind the third. Once the newer epoch is known, the Pool does not return to the
// former master, although the former master still reports the role.
func TestOldAnswers(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		cfg := f.config()
		cfg.Sentinel.PollInterval = time.Second
		p := openFleet(t, cfg)
		defer p.Close()
		f.mu.Lock()
		f.master[serverB] = true // two masters
		f.mu.Unlock()
		f.tell(serverB, 2, sentinelC)
		time.Sleep(4 * time.Second)
		for range 20 {
			lands(t, f, p, serverB, "new")
			f.nodes[serverB].KillConns(nil)
			time.Sleep(500 * time.Millisecond)
		}
		if s := p.Stats(); s.Switches != 1 {
			t.Errorf("%d switches, want 1", s.Switches)
		}
		// When the new master is gone and only old answers remain, the Pool uses them.
		f.nodes[sentinelC].Refuse(true)
		f.nodes[serverB].Refuse(true)
		f.nodes[serverB].KillConns(nil)
		if _, err := p.Do(t.Context(), "SET", "k", "old"); err != nil || !f.holds(serverA, "old") {
			t.Errorf("SET with old answers only = %v", err)
		}
	})
}

// TestSentinelList: the Pool learns sentinels missing in the Config, and forgets none in the Config.
func TestSentinelList(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.introduce(sentinelA, sentinelB)
		p := openFleet(t, f.config(sentinelA))
		defer p.Close()
		f.nodes[sentinelA].Refuse(true)
		f.nodes[sentinelA].KillConns(nil)
		time.Sleep(time.Second)
		f.promote(serverC)
		f.tell(serverC, 2)
		f.announce(serverA, serverC)
		time.Sleep(100 * time.Millisecond)
		lands(t, f, p, serverC, "one")

		f.introduce(sentinelB)
		time.Sleep(time.Minute)
		f.nodes[sentinelB].Refuse(true)
		f.nodes[sentinelB].KillConns(nil)
		f.nodes[sentinelA].Refuse(false)
		time.Sleep(3 * time.Second)
		f.promote(serverB)
		f.tell(serverB, 3)
		f.announce(serverC, serverB)
		time.Sleep(100 * time.Millisecond)
		lands(t, f, p, serverB, "two")
	})
}

// TestNodeMap: the Pool dials mapped addresses only.
func TestNodeMap(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		const prefix = "172.16."
		f.tell(prefix+"0.1:6379", 1)
		f.introduce(sentinelA, prefix+"9.2:26379")
		cfg := f.config(sentinelA)
		cfg.Sentinel.NodeMap = func(addr string) string {
			switch addr {
			case prefix + "0.1:6379":
				return serverA
			case prefix + "0.2:6379":
				return serverB
			case prefix + "9.2:26379":
				return sentinelB
			}
			t.Errorf("NodeMap is asked for %s", addr)
			return addr
		}
		p := openFleet(t, cfg)
		defer p.Close()
		lands(t, f, p, serverA, "one")
		f.promote(serverB)
		f.tell(prefix+"0.2:6379", 2)
		f.announce(prefix+"0.1:6379", prefix+"0.2:6379")
		time.Sleep(100 * time.Millisecond)
		lands(t, f, p, serverB, "two")
		f.nodes[sentinelA].Refuse(true)
		f.nodes[sentinelA].KillConns(nil)
		time.Sleep(2 * time.Second)
		if len(f.nodes[sentinelB].Conns()) == 0 {
			t.Error("the announced sentinel is not in use")
		}
	})
}

// TestNodeMapWithTLS: the certificates of the server and of a learned sentinel are checked against the announced host, not
// against the result of NodeMap; the certificate of a configured sentinel against the configured host.
func TestNodeMapWithTLS(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		a := newAuthority(t)
		names := map[string]string{serverA: "db.example", sentinelA: "10.1.0.1", sentinelB: "watch.example"}
		for addr, name := range names {
			f.nodes[addr].TLS(&tls.Config{Certificates: []tls.Certificate{a.issue(name)}})
		}
		f.tell("db.example:6379", 1)
		f.introduce(sentinelA, "watch.example:26379")
		f.introduce(sentinelB, "first.example:26379")
		cfg := f.config(sentinelA)
		cfg.TLS = &tls.Config{RootCAs: a.pool()}
		cfg.Sentinel.TLS = cfg.TLS.Clone()
		cfg.Sentinel.NodeMap = func(addr string) string {
			return map[string]string{"db.example:6379": serverA, "watch.example:26379": sentinelB, "first.example:26379": sentinelA}[addr]
		}
		p := openFleet(t, cfg)
		defer p.Close()
		lands(t, f, p, serverA, "one")
		for _, turn := range []struct{ off, on string }{{sentinelA, sentinelB}, {sentinelB, sentinelA}} {
			f.nodes[turn.on].Refuse(false)
			f.nodes[turn.off].Refuse(true)
			f.nodes[turn.off].KillConns(nil)
			time.Sleep(time.Minute)
			if len(f.nodes[turn.on].Conns()) == 0 {
				t.Errorf("%s, %s, is not in use: dialled %d times", turn.on, names[turn.on], len(f.dialled(turn.on)))
			}
		}
		if _, err := p.Succession(t.Context(), "", time.Now()); err != nil {
			t.Errorf("Succession = %v", err)
		}
	})
}

// TestLearnedSentinelWithTLS: a learned sentinel is asked under each of its announced names, also after the sentinel that is
// asked before no longer names it.
func TestLearnedSentinelWithTLS(t *testing.T) {
	for _, named := range [][]string{{"watch.example:26379"}, {"watch.example:26379", "stale.example:26379"}, {"stale.example:26379", "watch.example:26379"}} {
		inFleet(t, func(t *testing.T, f *fleet) {
			a := newAuthority(t)
			for addr, name := range map[string]string{serverA: "db.example", serverB: "db2.example", sentinelA: "10.1.0.1", sentinelB: "watch.example"} {
				f.nodes[addr].TLS(&tls.Config{Certificates: []tls.Certificate{a.issue(name)}})
			}
			f.tell("db.example:6379", 1)
			f.introduce(sentinelA, named...)
			cfg := f.config(sentinelA)
			cfg.TLS = &tls.Config{RootCAs: a.pool()}
			cfg.Sentinel.TLS = cfg.TLS.Clone()
			cfg.Sentinel.NodeMap = func(addr string) string {
				return map[string]string{"db.example:6379": serverA, "db2.example:6379": serverB, "watch.example:26379": sentinelB, "stale.example:26379": sentinelB}[addr]
			}
			p := openFleet(t, cfg)
			defer p.Close()
			lands(t, f, p, serverA, "one")
			if len(named) == 1 {
				f.introduce(sentinelA) // it knows the old master, and nobody else
			}
			f.promote(serverB)
			f.tell("db2.example:6379", 2, sentinelB)
			f.nodes[serverA].Refuse(true)
			f.nodes[serverA].KillConns(nil)
			lands(t, f, p, serverB, "two")
		})
	}
}

// TestSentinelCredentials: sentinels and server each get their own credentials only.
func TestSentinelCredentials(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for addr, srv := range f.nodes {
			srv.User("default", secret+addr)
		}
		cfg := f.config(sentinelA)
		cfg.Password = secret + serverA
		cfg.Sentinel.Password = secret + sentinelA
		cfg.DB = 3
		p := openFleet(t, cfg)
		defer p.Close()
		want(t, p, "OK", "SET", "k", "v")
		for _, cmd := range f.nodes[sentinelA].Commands() {
			if strings.Contains(cmd, serverA) || strings.HasPrefix(cmd, "SELECT") {
				t.Errorf("a sentinel was sent %q", cmd)
			}
		}
		cfg.Sentinel.Password = secret
		_, err := conn.Open(t.Context(), cfg)
		if !errors.Is(err, resp.ErrWrongPass) {
			t.Errorf("Open with a wrong password = %v", err)
		}
		checkDialError(t, err)
	})
}

// TestRoleForbidden: without permission for ROLE, the role in the reply to HELLO counts.
func TestRoleForbidden(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.nodes[serverA].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "ROLE" {
				return fakeredis.Reply("-NOPERM this user has no permissions to run the 'role' command\r\n")
			}
			return fakeredis.Run()
		})
		p, err := conn.Open(t.Context(), f.config())
		if strings.HasSuffix(t.Name(), "resp3") {
			if err != nil {
				t.Fatalf("Open = %v", err)
			}
			p.Close()
		} else if !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("Open = %v, want NOPERM", err)
		}
	})
}

// TestDialBySentinel: a Conn and a Stream without a Pool ask the sentinels once, and leave no goroutine or connection
// behind.
func TestDialBySentinel(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		c := dialConn(t, f.config())
		want(t, c, "OK", "SET", "k", "v")
		c.Close()
		s := open(t, f.config())
		ping(t, s)
		s.Close()
		synctest.Wait()
		for addr, srv := range f.nodes {
			if n := len(srv.Conns()); n > 0 {
				t.Errorf("%d connections to %s are left", n, addr)
			}
		}
		if s.Addr() != serverA {
			t.Errorf("Addr = %s", s.Addr())
		}
	})
}

// TestSentinelTarget: masters of the same name with other sentinels are other targets. The order of the sentinels
// does not matter.
func TestSentinelTarget(t *testing.T) {
	target := func(master string, db int, addrs ...string) string {
		pool, err := conn.New(conn.Config{DB: db, Sentinel: conn.Sentinel{Master: master, Addrs: addrs}})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		return pool.Target()
	}
	one := target("mymaster", 0, "a:1", "b:2")
	if got := target("mymaster", 0, "b:2", "a:1"); got != one {
		t.Errorf("Target() = %q and %q of the same sentinels", one, got)
	}
	for _, other := range []string{target("mymaster", 0, "c:1", "d:2"), target("another", 0, "a:1", "b:2"), target("mymaster", 1, "a:1", "b:2")} {
		if other == one {
			t.Errorf("Target() = %q of two servers", other)
		}
	}
}

// After a partition a sentinel reaches the others before it hears what they have decided meanwhile.
func TestSuccessionAfterAPartition(t *testing.T) {
	for name, x := range map[string]struct {
		others []string
		hello  string
		fresh  bool // the sentinel has just started
		counts bool
	}{
		"all are heard":                 {[]string{sentinelB, sentinelC}, "4000", false, true},
		"none is heard":                 {[]string{sentinelB, sentinelC}, "4001", false, false},
		"one, to be heard":              {[]string{sentinelB}, "4001", false, false},
		"it is the only one":            {nil, "", false, true},
		"it has just started":           {[]string{sentinelB, sentinelC}, "200", true, false},
		"the only one has just started": {nil, "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				p := openFleet(t, f.config(sentinelA))
				defer p.Close()
				f.mu.Lock()
				v := f.views[sentinelA]
				v.others, v.hello, v.fresh = x.others, x.hello, x.fresh
				f.mu.Unlock()
				for _, other := range []string{sentinelB, sentinelC} {
					f.nodes[other].Unreachable(true)
				}
				time.Sleep(time.Millisecond)
				if s, err := p.Succession(t.Context(), "", time.Now()); (err == nil) != x.counts {
					t.Errorf("Succession() = %+v, %v; counts: %v", s, err, x.counts)
				}
			})
		})
	}
}
