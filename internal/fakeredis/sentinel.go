package fakeredis

import (
	"cmp"
	"slices"
	"time"
)

// Watch is the configuration of sentinels.
type Watch struct {
	Name      string        // of the master
	Master    string        // the master's first address
	Servers   []string      // the addresses of the master and its replicas
	Sentinels []string      // the addresses of all sentinels
	Quorum    int           // the number of sentinels that must find the master down
	DownAfter time.Duration // the silence after which a server is down
	Failover  time.Duration // how long a part of a failover may take
	// Chance returns a time below most. Sentinels differ by Chance in the time of acting, or all would be candidates at once.
	// It must not block.
	Chance func(most time.Duration) time.Duration
}

// The constants of Sentinel.
const (
	sentinelPing    = time.Second
	sentinelInfo    = 10 * time.Second
	sentinelHello   = 2 * time.Second
	sentinelAsk     = time.Second
	sentinelElect   = 10 * time.Second
	sentinelDesync  = time.Second
	tiltAfter       = 2 * time.Second
	tiltFor         = 30 * time.Second
	convertAfter    = 4 * sentinelHello
	silentCandidate = 5 * time.Second
	// cutCandidate is more than the time without a connection to a server after a failover, which ends the connections.
	cutCandidate = 2500 * time.Millisecond
)

// NewSentinel returns a Server for a sentinel. It begins to watch on joining a Network, after all further servers.
func NewSentinel(w Watch) *Server {
	s := New()
	t := &sentinel{s: s, watch: w, master: w.Master, servers: map[string]*instance{}, others: map[string]*fellow{}}
	for _, addr := range w.Servers {
		t.servers[addr] = newInstance(addr)
	}
	t.servers[w.Master].infoAsked = time.Now().Add(-w.Chance(sentinelInfo)) // sentinels start one after the other
	for _, addr := range w.Sentinels {
		t.others[addr] = &fellow{instance: newInstance(addr), heard: time.Now()}
	}
	s.sentinel = t
	return s
}

// sentinel is the knowledge and the plans of a sentinel, guarded by the mu of its Server. It behaves as Redis does: each
// sentinel has its own view, asks each server itself, and learns the configuration of its peers by way of the servers.
type sentinel struct {
	s       *Server
	watch   Watch
	master  string
	epoch   int64 // the largest known
	config  int64 // the epoch of the failover to the present master
	servers map[string]*instance
	others  map[string]*fellow // all sentinels except this sentinel
	last    time.Time          // the last beat
	tilt    time.Time          // until then the sentinel trusts nothing seen: it has not run for a while
	hello   time.Time
	ask     time.Time

	voted    int64  // the epoch of the sentinel's last vote
	votedFor string // a sentinel's address

	stage     stage
	stageAt   time.Time
	begun     time.Time // the last failover of this sentinel or of a candidate with its vote
	campaign  int64     // the epoch of the sentinel's own failover
	candidate string    // the chosen replica
}

// stage is how far a failover is.
type stage int

const (
	noFailover stage = iota
	waitStart
	waitPromotion
	reconfigure
)

// instance is a server, as known to a sentinel.
type instance struct {
	addr      string
	pinged    time.Time // the first ping without an answer; zero: all are answered
	ping      time.Time // the last
	pong      time.Time
	cut       bool // the connection is refused
	down      bool
	downFrom  time.Time
	info      report
	infoAt    time.Time // zero: none yet
	infoAsked time.Time
	roleSince time.Time // begin of the role reported
	following time.Time // begin of the master reported
	copied    int64     // the last offset reported in the role of a replica
	told      bool      // told to follow the new master, in this failover
}

// fellow is another sentinel.
type fellow struct {
	*instance
	heard      time.Time // the last announcement
	masterDown bool
	answered   time.Time
	leader     string
	leaderAt   int64 // the epoch of the vote
}

// report is a sentinel's extract of INFO.
type report struct {
	role, runID, master string
	linked              bool
	downFor             time.Duration
	offset              int64
	replicas            []string
}

func newInstance(addr string) *instance {
	now := time.Now()
	return &instance{addr: addr, pong: now, roleSince: now, following: now}
}

// restarted forgets what is not in a sentinel's file, which has the promoted replica in place of the master. The sentinel pretends to have heard of
// all others just now.
func (t *sentinel) restarted() {
	t.master = t.current()
	for addr := range t.servers {
		t.servers[addr] = newInstance(addr)
		t.servers[addr].cut = true
	}
	for addr := range t.others {
		t.others[addr] = &fellow{instance: newInstance(addr), heard: time.Now()}
		t.others[addr].cut = true
	}
	t.last, t.tilt, t.hello, t.ask, t.begun = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	t.stage, t.votedFor, t.candidate = noFailover, "", ""
}

// beat does the due work.
func (t *sentinel) beat() {
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) > tiltAfter {
		t.tilt = now.Add(tiltFor)
	}
	t.last = now
	t.questionAll()
	for _, addr := range sortedKeys(t.others) {
		t.check(t.others[addr].instance)
	}
	if now.Sub(t.hello) >= sentinelHello {
		t.announce()
	}
	if now.Before(t.tilt) {
		return
	}
	for _, addr := range sortedKeys(t.servers) {
		t.judge(t.servers[addr])
	}
	for _, addr := range sortedKeys(t.others) {
		t.judge(t.others[addr].instance)
	}
	t.askOthers(false)
	if t.stage == noFailover && t.objectivelyDown() && now.Sub(t.begun) > 2*t.watch.Failover {
		t.begin()
	}
	t.goOn()
}

// check sends a due ping. An unanswered ping is repeated over a new connection.
func (t *sentinel) check(i *instance) {
	now := time.Now()
	if now.Sub(i.ping) < min(sentinelPing, t.watch.DownAfter) || !i.pinged.IsZero() && now.Sub(i.ping) < t.watch.DownAfter/2 {
		return
	}
	if i.ping = now; i.pinged.IsZero() {
		i.pinged = now
	}
	from := t.s.addr
	t.s.sendOr(i.addr, func(to *Server) {
		to.send(from, 0, func(*Server) { i.pong, i.pinged, i.cut = time.Now(), time.Time{}, false })
	}, func() { i.cut = true })
}

func (t *sentinel) questionAll() {
	for _, addr := range sortedKeys(t.servers) {
		t.question(t.servers[addr])
	}
}

// question pings a server and reads its INFO, when due.
func (t *sentinel) question(i *instance) {
	t.check(i)
	now, period := time.Now(), sentinelInfo
	if i.addr != t.master && (t.objectivelyDown() || t.stage != noFailover || i.info.downFor > 0) {
		period = time.Second
	}
	if now.Sub(i.infoAsked) < period {
		return
	}
	i.infoAsked = now
	from := t.s.addr
	t.s.send(i.addr, 0, func(to *Server) {
		said := to.reportLocked()
		to.send(from, 0, func(*Server) { t.read(i, said) })
	})
}

// reportLocked is the server's INFO.
func (s *Server) reportLocked() report {
	r := report{role: "master", runID: s.runID, master: s.repl.master, offset: s.repl.offset}
	for _, f := range s.repl.feeds {
		r.replicas = append(r.replicas, f.replica)
	}
	if r.master != "" {
		r.role, r.linked = "slave", s.repl.state == "connected"
		if !r.linked {
			r.downFor = time.Since(s.repl.downFrom)
		}
	}
	return r
}

// judge decides whether a server, or another sentinel, is down.
func (t *sentinel) judge(i *instance) {
	now := time.Now()
	silent := time.Duration(0)
	switch {
	case !i.pinged.IsZero():
		silent = now.Sub(i.pinged)
	case i.cut:
		silent = now.Sub(i.pong)
	}
	strange := i.addr == t.master && i.info.role == "slave" && now.Sub(i.roleSince) > t.watch.DownAfter+2*sentinelInfo
	down := silent > t.watch.DownAfter || strange
	if down != i.down {
		i.down, i.downFrom = down, now
	}
}

// objectivelyDown reports whether enough sentinels find the master down.
func (t *sentinel) objectivelyDown() bool {
	if !t.servers[t.master].down {
		return false
	}
	n := 1
	for _, o := range t.others {
		if o.masterDown && time.Since(o.answered) < 5*sentinelAsk {
			n++
		}
	}
	return n >= t.watch.Quorum
}

// askOthers asks the sentinels whether the master is down, and for their votes in a failover.
func (t *sentinel) askOthers(now bool) {
	if !t.servers[t.master].down && t.stage != waitStart || !now && time.Since(t.ask) < sentinelAsk {
		return
	}
	t.ask = time.Now()
	from, master, epoch, candidate := t.s.addr, t.master, t.epoch, ""
	if t.stage != noFailover {
		candidate = from
	}
	for _, addr := range sortedKeys(t.others) {
		o := t.others[addr]
		t.s.send(addr, 0, func(to *Server) {
			down, leader, at := to.sentinel.answer(master, epoch, candidate)
			to.send(from, 0, func(*Server) {
				o.masterDown, o.answered = down, time.Now()
				if candidate != "" {
					o.leader, o.leaderAt = leader, at
				}
			})
		})
	}
}

// answer is the answer to a sentinel: whether the master is down, and this sentinel's vote.
func (t *sentinel) answer(master string, epoch int64, candidate string) (down bool, leader string, at int64) {
	down = master == t.master && t.servers[master].down && !time.Now().Before(t.tilt)
	if candidate != "" {
		t.vote(epoch, candidate)
	}
	return down, t.votedFor, t.voted
}

func (t *sentinel) vote(epoch int64, candidate string) {
	t.epoch = max(t.epoch, epoch)
	if t.voted < epoch && t.epoch <= epoch {
		t.votedFor, t.voted = candidate, epoch
		if candidate != t.s.addr {
			t.begun = time.Now().Add(t.watch.Chance(sentinelDesync))
		}
	}
}

// announce tells all sentinels the master, by way of all servers. A partition ends the connections, and so nothing comes later.
func (t *sentinel) announce() {
	t.hello = time.Now()
	from := t.s.addr
	master, config, epoch, others := t.current(), t.config, t.epoch, sortedKeys(t.others)
	for _, addr := range sortedKeys(t.servers) {
		if !t.s.network.reaches(from, addr) {
			continue
		}
		t.s.send(addr, 0, func(to *Server) {
			for _, other := range others {
				if to.network.reaches(addr, other) {
					to.send(other, 0, func(to *Server) { to.sentinel.hear(from, master, config, epoch) })
				}
			}
		})
	}
}

// hear takes in a sentinel's announcement. Unlike Redis, hear ends a failover under way, which could give the same epoch two
// masters.
func (t *sentinel) hear(from, master string, config, epoch int64) {
	t.others[from].heard = time.Now()
	t.epoch = max(t.epoch, epoch)
	if config > t.config {
		t.config = config
		if master != t.master || t.stage != noFailover {
			t.become(master)
		}
	}
}

// current is the master told to clients: during a failover the promoted replica as soon as its role is master.
func (t *sentinel) current() string {
	if t.stage == reconfigure {
		return t.candidate
	}
	return t.master
}

// become makes another server the master of the configuration.
func (t *sentinel) become(master string) {
	from := t.master
	t.master, t.stage, t.candidate = master, noFailover, ""
	t.know(master)
	for addr := range t.servers {
		t.servers[addr] = newInstance(addr)
	}
	for _, o := range t.others {
		o.masterDown, o.leader = false, ""
	}
	t.publish("+switch-master", t.watch.Name+" "+spaced(from)+" "+spaced(master))
}

// begin begins a failover: this sentinel is a candidate for leading the failover.
func (t *sentinel) begin() {
	t.epoch++
	t.campaign = t.epoch
	t.begun = time.Now().Add(t.watch.Chance(sentinelDesync))
	t.enter(waitStart)
	t.askOthers(true)
	t.questionAll() // for the choice of a replica
}

func (t *sentinel) enter(s stage) { t.stage, t.stageAt = s, time.Now() }

// goOn goes on with a failover.
func (t *sentinel) goOn() {
	switch late := time.Since(t.stageAt); t.stage {
	case waitStart:
		if t.elected() {
			t.promote()
		} else if late > min(sentinelElect, t.watch.Failover) {
			t.enter(noFailover)
		}
	case waitPromotion:
		if late > t.watch.Failover {
			t.enter(noFailover)
		}
	case reconfigure:
		t.reconfigure(late > t.watch.Failover)
	}
}

// elected reports whether this sentinel leads the failover of its campaign.
func (t *sentinel) elected() bool {
	votes := map[string]int{}
	for _, o := range t.others {
		if o.leader != "" && o.leaderAt == t.campaign {
			votes[o.leader]++
		}
	}
	most, own := "", t.s.addr
	for _, name := range sortedKeys(votes) {
		if most == "" || votes[name] > votes[most] {
			most = name
		}
	}
	t.vote(t.campaign, cmp.Or(most, own))
	if t.voted == t.campaign {
		votes[t.votedFor]++
	}
	return votes[own] >= max(t.watch.Quorum, (len(t.others)+1)/2+1)
}

// promote makes a replica the master.
func (t *sentinel) promote() {
	best := t.choice()
	if best == nil {
		t.enter(noFailover)
		return
	}
	t.candidate = best.addr
	t.enter(waitPromotion)
	t.follow(best.addr, "")
}

// choice is the replica to be the master; nil if none will do.
func (t *sentinel) choice() *instance {
	m := t.servers[t.master]
	broken := 10 * t.watch.DownAfter
	fresh := 3 * sentinelInfo
	if m.down {
		broken += time.Since(m.downFrom)
		fresh = silentCandidate
	}
	var good []*instance
	for _, addr := range sortedKeys(t.servers) {
		i := t.servers[addr]
		if addr != t.master && !i.down && !i.cut && time.Since(i.pong) <= silentCandidate && !i.infoAt.IsZero() &&
			time.Since(i.infoAt) <= fresh && i.info.downFor <= broken {
			good = append(good, i)
		}
	}
	if len(good) == 0 {
		return nil
	}
	return slices.MinFunc(good, func(a, b *instance) int {
		return cmp.Or(cmp.Compare(b.info.offset, a.info.offset), cmp.Compare(a.info.runID, b.info.runID))
	})
}

// read takes in a server's INFO.
func (t *sentinel) read(i *instance, said report) {
	now := time.Now()
	if t.servers[i.addr] != i {
		return
	}
	if i.info.role != said.role {
		i.roleSince = now
	}
	if i.info.master != said.master {
		i.following = now
	}
	if i.info, i.infoAt = said, now; said.role == "slave" {
		i.copied = said.offset
	}
	if i.addr == t.master {
		t.know(said.replicas...)
	}
	if now.Before(t.tilt) {
		return
	}
	switch {
	case t.stage == waitPromotion && i.addr == t.candidate && said.role == "master":
		t.config = t.campaign
		t.enter(reconfigure)
		for _, o := range t.servers {
			o.told = false
		}
		t.publish("+promoted-slave", "slave "+i.addr+" "+spaced(i.addr)+" @ "+t.watch.Name+" "+spaced(t.master))
		t.announce()
	case i.addr == t.master || t.stage >= waitPromotion:
	case said.role == "master" && now.Sub(i.roleSince) > convertAfter,
		said.role == "slave" && said.master != t.master && now.Sub(i.following) > convertAfter:
		if m := t.servers[t.master]; !i.down && !m.down && m.info.role == "master" && now.Sub(m.infoAt) < 2*sentinelInfo &&
			now.Sub(i.downFrom) > convertAfter {
			t.follow(i.addr, t.master)
		}
	}
}

// know makes the sentinel know servers.
func (t *sentinel) know(addrs ...string) {
	for _, addr := range addrs {
		if t.servers[addr] == nil {
			t.servers[addr] = newInstance(addr)
		}
	}
}

// follow makes a server follow a master, or be one for "". It ends the server's connections, those of the sentinels too.
func (t *sentinel) follow(addr, master string) {
	sentinels := append(sortedKeys(t.others), t.s.addr)
	t.s.send(addr, 0, func(to *Server) {
		to.reconfigureLocked(master)
		for _, other := range sentinels {
			to.send(other, 0, func(to *Server) { to.sentinel.disconnected(addr) })
		}
	})
}

// disconnected notes the end of the connection to a server. The next one comes with the next ping.
func (t *sentinel) disconnected(addr string) {
	if i := t.servers[addr]; i != nil {
		i.cut, i.ping = true, time.Now()
	}
}

// reconfigure makes the remaining replicas follow the new master, and ends the failover when all follow, or when late.
func (t *sentinel) reconfigure(late bool) {
	done := true
	for _, addr := range sortedKeys(t.servers) {
		i := t.servers[addr]
		if addr == t.master || addr == t.candidate || i.down {
			continue
		}
		if !i.told || late {
			i.told = true
			t.follow(addr, t.candidate)
		}
		done = done && i.info.master == t.candidate && i.info.linked
	}
	if done || late {
		t.become(t.candidate)
		t.announce()
	}
}

func (t *sentinel) publish(channel, payload string) { t.s.publish(channel, payload) }

// Configured returns the master named by a sentinel to clients, and the epoch of the failover to the master.
func (s *Server) Configured() (addr string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sentinel.current(), s.sentinel.config
}

// Unfit returns the replicas that a sentinel could not have promoted a moment ago: it takes them for down, has not heard of them for longer
// than a candidate may be silent, has no connection to them for another reason than a failover, or knows no data of them. Unfit returns none
// if the sentinel does not run.
func (s *Server) Unfit() (addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.still.Load() {
		return nil
	}
	for _, addr := range sortedKeys(s.sentinel.servers) {
		i := s.sentinel.servers[addr]
		if addr != s.sentinel.master && (i.down || i.cut && time.Since(i.pong) > cutCandidate || time.Since(i.pong) > silentCandidate || i.copied == 0) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
