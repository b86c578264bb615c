package fakeredis

import (
	"maps"
	"slices"
	"time"
)

// How often replicas and masters of a Network hear of each other, as with Redis' own defaults.
const (
	replicaCron    = time.Second
	masterPing     = 10 * time.Second
	replTimeout    = time.Minute
	connectTimeout = 2 * time.Second
	backlogLength  = 10000 // effects
)

// replication is a server's part in a Network as a master or a replica. Effects are replicated, not commands: the values of the
// keys changed by a command or a script, and the published messages. An offset counts effects, and a few more.
type replication struct {
	id      string // of the history of the data
	before  string // the history begun as a master
	until   int64  // the offset up to which the data contains history
	offset  int64
	backlog []effect // the last effects of this history
	feeds   []*feed  // to replicas
	pings   time.Time
	full    int // replicas that have begun to follow, and got all the data
	partial int // and got the missing effects

	master   string // the address of the master; "" for a master
	source   *feed  // the connection to the master; nil: none, or without an answer
	state    string // of the source: "connect", "sync", "connected"
	asked    time.Time
	said     time.Time // the last acknowledgement
	heard    time.Time // the last of the master
	synced   bool      // the replica has had all the data of this master, or of the master before
	downFrom time.Time // the begin of the time without an answering master
}

// feed is a connection between a replica and its master. Its fields are the master's.
type feed struct {
	master, replica string // constant
	state           string // "wait_bgsave", "send_bulk", "online"
	acked           int64
	heard           time.Time
}

// effect is the effect of a command or a script.
type effect struct {
	offset   int64 // behind it
	changes  []change
	messages []Message
}

// change is the new value of a key; nil for a deleted key. All servers share the value.
type change struct {
	db    int
	key   string
	entry *entry
}

// begin begins a history.
func (r *replication) begin() {
	*r = replication{id: newRunID(), offset: 1, master: r.master, state: "connect", downFrom: time.Now()}
}

// clone is a copy with no memory in common with e.
func (e *entry) clone() *entry {
	if e == nil {
		return nil
	}
	c := &entry{value: e.value, until: e.until}
	switch v := e.value.(type) {
	case *hash:
		c.value = &hash{slices.Clone(v.fields), maps.Clone(v.values)}
	case *list:
		c.value = &list{slices.Clone(v.items)}
	case *stringSet:
		c.value = &stringSet{maps.Clone(v.members)}
	case *sortedSet:
		c.value = &sortedSet{maps.Clone(v.scores)}
	}
	return c
}

// outwards is a copy of e for replicas. From Redis 7.0 on a replica gets the end of a life as a point in time, and judges that by
// its own clock.
func (s *Server) outwards(e *entry) *entry { return e.moved(-s.epoch()) }

// inwards is a copy of an entry from outwards.
func (s *Server) inwards(e *entry) *entry { return e.moved(s.epoch()) }

// moved is a clone with the end of its life moved by some ms.
func (e *entry) moved(by int64) *entry {
	c := e.clone()
	if c != nil && c.until != 0 {
		c.until = max(1, c.until+by)
	}
	return c
}

// propagateLocked sends the effects of the last command to the replicas.
func (s *Server) propagateLocked() {
	if s.network == nil {
		return
	}
	e := effect{messages: s.published}
	s.published = nil
	for i := range s.dbs {
		d := &s.dbs[i]
		if len(d.changed) == 0 {
			continue
		}
		for _, key := range sortedKeys(d.changed) {
			e.changes = append(e.changes, change{i, key, s.outwards(d.keys[key])})
		}
		clear(d.changed)
	}
	if len(e.changes)+len(e.messages) == 0 || s.repl.master != "" {
		return
	}
	s.repl.offset++
	e.offset = s.repl.offset
	s.feedLocked(e)
}

// feedLocked keeps an effect, and sends the effect to the replicas.
func (s *Server) feedLocked(e effect) {
	r := &s.repl
	r.backlog = append(r.backlog, e)
	if len(r.backlog) > backlogLength {
		r.backlog = slices.Clone(r.backlog[len(r.backlog)/2:])
	}
	for _, f := range r.feeds {
		if f.state != "wait_bgsave" { // the replica gets the effect with the whole data
			s.send(f.replica, 0, func(to *Server) { to.takeLocked(f, e) })
		}
	}
}

// takeLocked applies the master's effect at a replica.
func (s *Server) takeLocked(f *feed, e effect) {
	if !s.followsLocked(f) {
		return
	}
	for _, c := range e.changes {
		d := &s.dbs[c.db]
		d.touch(c.key)
		if c.entry == nil {
			delete(d.keys, c.key)
			continue
		}
		d.keys[c.key] = s.inwards(c.entry)
	}
	for _, m := range e.messages {
		if m.Shard {
			s.spublish(m.Channel, m.Payload)
		} else {
			s.publish(m.Channel, m.Payload)
		}
	}
	s.propagateLocked() // forgets local changes: replicas of this replica get the master's effect
	s.repl.offset = e.offset
	s.feedLocked(e)
}

// followsLocked reports whether f is the connection to the master. The peer of a stale connection is told.
func (s *Server) followsLocked(f *feed) bool {
	if s.repl.source == f {
		s.repl.heard = time.Now()
		return true
	}
	s.send(f.master, 0, func(to *Server) { to.dropLocked(f) })
	return false
}

// dropLocked forgets a replica.
func (s *Server) dropLocked(f *feed) {
	s.repl.feeds = slices.DeleteFunc(s.repl.feeds, func(o *feed) bool { return o == f })
}

// cutLocked ends the connections to all replicas.
func (s *Server) cutLocked() {
	for _, f := range s.repl.feeds {
		s.send(f.replica, 0, func(to *Server) { to.orphanLocked(f) })
	}
	s.repl.feeds = nil
}

// orphanLocked notes the end of the connection to the master.
func (s *Server) orphanLocked(f *feed) {
	if r := &s.repl; r.source == f {
		if r.state == "connected" {
			r.downFrom = time.Now()
		}
		r.source, r.state = nil, "connect"
	}
}

// leaveLocked ends all connections of replication.
func (s *Server) leaveLocked() {
	if s.network == nil {
		return
	}
	s.cutLocked()
	if f := s.repl.source; f != nil {
		s.send(f.master, 0, func(to *Server) { to.dropLocked(f) })
		s.orphanLocked(f)
	}
}

// ReplicaOf makes the server a replica of the server at addr in its Network, or a master if addr is "".
func (s *Server) ReplicaOf(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicaOfLocked(addr)
}

func (s *Server) replicaOfLocked(addr string) {
	r := &s.repl
	if r.master == addr {
		return
	}
	if f := r.source; f != nil {
		s.send(f.master, 0, func(to *Server) { to.dropLocked(f) })
	}
	r.source, r.state = nil, "connect"
	if addr == "" {
		r.before, r.until, r.id, r.master, r.synced = r.id, r.offset, newRunID(), "", false
		s.cutLocked()
		return
	}
	if r.master == "" || r.downFrom.IsZero() {
		r.downFrom = time.Now()
	}
	r.master, r.asked = addr, time.Time{}
	s.unblockLocked()
}

// reconfigureLocked is what a sentinel has a server do: to follow another master, or none, and to hang up on all clients.
func (s *Server) reconfigureLocked(addr string) {
	s.replicaOfLocked(addr)
	for _, id := range sortedKeys(s.conns) {
		s.killLocked(s.conns[id], false)
	}
}

// replicateLocked does the periodic work.
func (s *Server) replicateLocked() {
	r, now := &s.repl, time.Now()
	for _, f := range slices.Clone(r.feeds) {
		if now.Sub(f.heard) > replTimeout {
			s.dropLocked(f)
			s.send(f.replica, 0, func(to *Server) { to.orphanLocked(f) })
		}
	}
	if r.master == "" {
		if len(r.feeds) > 0 && now.Sub(r.pings) >= masterPing {
			r.pings = now
			r.offset++
			s.feedLocked(effect{offset: r.offset})
		}
		return
	}
	f := r.source
	switch {
	case f == nil && now.Sub(r.asked) >= replicaCron:
		s.askLocked()
	case f != nil && now.Sub(r.heard) > replTimeout, f != nil && r.state == "connect" && now.Sub(r.asked) > connectTimeout:
		s.send(f.master, 0, func(to *Server) { to.dropLocked(f) })
		s.orphanLocked(f)
	case f != nil && r.state == "connected" && now.Sub(r.said) >= replicaCron:
		s.acknowledgeLocked(f)
	}
}

// askLocked makes the replica ask its master for missing effects.
func (s *Server) askLocked() {
	r := &s.repl
	f := &feed{master: r.master, replica: s.addr}
	r.source, r.asked, r.heard = f, time.Now(), time.Now()
	id, offset := r.id, r.offset
	s.send(r.master, 0, func(to *Server) { to.serveReplicaLocked(f, id, offset) })
}

// serveReplicaLocked answers a replica with the history id up to offset: the replica gets the rest, or everything.
func (s *Server) serveReplicaLocked(f *feed, id string, offset int64) {
	r := &s.repl
	if r.master != "" && r.state != "connected" { // NOMASTERLINK
		s.send(f.replica, 0, func(to *Server) { to.orphanLocked(f) })
		return
	}
	f.heard, f.acked = time.Now(), offset
	r.feeds = append(r.feeds, f)
	first := r.offset + 1
	if len(r.backlog) > 0 {
		first = r.backlog[0].offset
	}
	known := id == r.id && offset <= r.offset || id == r.before && offset <= r.until
	if known && offset >= first-1 {
		f.state = "online"
		r.partial++
		name := r.id
		s.send(f.replica, 0, func(to *Server) { to.continueLocked(f, name) })
		for _, e := range r.backlog {
			if e.offset > offset {
				s.send(f.replica, 0, func(to *Server) { to.takeLocked(f, e) })
			}
		}
		return
	}
	f.state = "wait_bgsave"
	r.full++
	s.send(f.replica, 0, func(to *Server) {
		if to.followsLocked(f) {
			to.repl.state = "sync"
		}
	})
	time.AfterFunc(s.network.delay("", f.replica), func() { s.snapshot(f) })
}

// snapshot sends a replica all the data.
func (s *Server) snapshot(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.repl.feeds, f) {
		return
	}
	var all []change
	for i := range s.dbs {
		for _, key := range sortedKeys(s.dbs[i].keys) {
			all = append(all, change{i, key, s.outwards(s.dbs[i].keys[key])})
		}
	}
	f.state, f.acked = "send_bulk", 0
	id, offset := s.repl.id, s.repl.offset
	s.send(f.replica, s.network.delay("", f.replica), func(to *Server) { to.loadLocked(f, all, id, offset) })
}

// continueLocked goes on with the replica's history.
func (s *Server) continueLocked(f *feed, id string) {
	if !s.followsLocked(f) {
		return
	}
	r := &s.repl
	if r.id != id {
		r.before, r.until, r.id = r.id, r.offset, id
		s.cutLocked()
	}
	s.linkedLocked(f)
}

// loadLocked replaces the data of the replica by the data of the master.
func (s *Server) loadLocked(f *feed, all []change, id string, offset int64) {
	if !s.followsLocked(f) {
		return
	}
	s.cutLocked()
	for i := range s.dbs {
		for key := range s.dbs[i].keys {
			s.dbs[i].touch(key)
		}
		s.dbs[i].keys = map[string]*entry{}
		clear(s.dbs[i].changed)
	}
	for _, c := range all {
		s.dbs[c.db].keys[c.key] = s.inwards(c.entry)
	}
	r := &s.repl
	r.id, r.before, r.offset, r.backlog = id, "", offset, nil
	s.linkedLocked(f)
}

func (s *Server) linkedLocked(f *feed) {
	s.repl.state, s.repl.downFrom, s.repl.synced = "connected", time.Time{}, true
	s.acknowledgeLocked(f)
}

// acknowledgeLocked tells the master how far the replica is.
func (s *Server) acknowledgeLocked(f *feed) {
	offset := s.repl.offset
	s.repl.said = time.Now()
	s.send(f.master, 0, func(to *Server) {
		if !slices.Contains(to.repl.feeds, f) {
			s := to
			s.send(f.replica, 0, func(to *Server) { to.orphanLocked(f) })
			return
		}
		f.acked, f.heard, f.state = offset, time.Now(), "online"
		to.serveWaitersLocked()
	})
}

// demandLocked has all replicas acknowledge.
func (s *Server) demandLocked() {
	for _, f := range s.repl.feeds {
		s.send(f.replica, 0, func(to *Server) {
			if to.followsLocked(f) && to.repl.state == "connected" {
				to.acknowledgeLocked(f)
			}
		})
	}
}

// acksLocked is the number of replicas with an acknowledged offset of at least offset.
func (s *Server) acksLocked(offset int64) int {
	if s.network == nil {
		return s.replicas
	}
	n := 0
	for _, f := range s.repl.feeds {
		if f.state == "online" && f.acked >= offset {
			n++
		}
	}
	return n
}

// Replication is how a server of a Network stands.
type Replication struct {
	Master  string // the address of the master; "" for a master
	Linked  bool   // a replica: fed by the master
	Offset  int64
	Online  []string // a master: the replicas fed
	Syncing []string // replicas receiving everything
	Down    bool     // killed, and not revived
	Running bool     // neither loading nor stalled
}

// Replication returns how the server stands.
func (s *Server) Replication() Replication {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Replication{
		Master: s.repl.master, Linked: s.repl.state == "connected", Offset: s.repl.offset,
		Down: s.down, Running: !s.down && !s.still.Load(),
	}
	for _, f := range s.repl.feeds {
		if f.state == "online" {
			r.Online = append(r.Online, f.replica)
		} else {
			r.Syncing = append(r.Syncing, f.replica)
		}
	}
	return r
}
