package sentinel

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Succession is a sentinel's view of the replicas that may take the master's place. conn.Succession explains the fields.
type Succession struct {
	Master       string
	Addr         string
	Replicas     int
	ReplicaAddrs []string
	Away         int
	AwayAddrs    []string
	Bare         bool
	Asked        time.Time
	Changes      uint64
}

// Reasons for not believing a sentinel: its view may be outdated.
var (
	errMinority  = errors.New("the sentinel does not reach a majority")
	errUnheard   = errors.New("the sentinel has not heard from a majority lately")
	errCutOff    = errors.New("the sentinel does not reach the master")
	errReplacing = errors.New("the sentinel replaces the master")
	errDisputed  = errors.New("a sentinel names another master")
)

// replica is a sentinel's description of a replica.
type replica struct {
	addr, id string // as announced; of the process: two sentinels may know a replica by two addresses
	away     bool   // the sentinel would not promote the replica
}

// opinion is the answer of one sentinel.
type opinion struct {
	asked    time.Time
	addr     string // of the master; "" without an answer
	id       string // of the master's process; "" if unknown
	epoch    int64  // of the sentinel's configuration; below 0 if missing
	replicas []replica
	err      error // why the sentinel cannot vouch for the master; nil if it can
}

// combine returns the known master's succession by the opinions, or an error if none counts. The first sentinel able to
// vouch for the master describes the master. Its replicas count in any opinion: a sentinel unable to vouch may promote a
// replica.
func (r *Resolver) combine(all []opinion) (s Succession, err error) {
	m := r.current()
	other := func(o opinion) bool { return o.addr != "" && m.seq > 0 && o.addr != m.addr }
	newest := int64(-1) // the newest epoch of a sentinel that vouches for the master
	err = errUnknownMaster
	for _, o := range all {
		switch {
		case other(o):
			err = errDisputed
		case o.err != nil:
			err = o.err
		default:
			newest = max(newest, o.epoch)
			if s.Asked.IsZero() {
				s = Succession{Asked: o.asked, Addr: o.addr, Master: o.id, Changes: m.seq}
			}
		}
	}
	if s.Asked.IsZero() {
		return s, err
	}
	var replicas []replica
	for _, o := range all {
		switch known := o.id != "" && o.id == s.Master; { // the master under another address
		case other(o) && !known && o.epoch >= newest: // perhaps the next master
			return Succession{}, errDisputed
		case !other(o) || known:
			replicas = append(replicas, o.replicas...)
		}
	}
	s.count(replicas)
	return s, nil
}

// count sets the replicas of s, as described by some sentinels. A replica is away if all of them say so.
func (s *Succession) count(described []replica) {
	counted := make(map[string]bool) // by address and by id
	for _, away := range []bool{false, true} {
		for _, r := range described {
			id := "id " + r.id
			if r.away != away || r.addr != "" && counted[r.addr] || r.id != "" && counted[id] {
				continue
			}
			counted[r.addr], counted[id] = true, true
			if away {
				s.Away++
				s.AwayAddrs = append(s.AwayAddrs, r.addr)
				continue
			}
			s.Replicas++
			s.ReplicaAddrs = append(s.ReplicaAddrs, r.addr)
		}
	}
}

// askReplicas asks one sentinel about the master and its replicas. A sentinel that cannot vouch for the master is asked last
// the next time.
func (r *Resolver) askReplicas(ctx context.Context, at sentinelAddr) opinion {
	o := opinion{asked: time.Now(), epoch: -1}
	name := r.cfg.Master
	replies, err := r.roundTrip(ctx, at,
		resp.Cmd("SENTINEL", "master", name), resp.Cmd("SENTINEL", "replicas", name), resp.Cmd("SENTINEL", "sentinels", name),
		resp.Cmd("SENTINEL", "ckquorum", name), resp.Cmd("INFO", "server"))
	if err == nil {
		err = o.read(replies, r.cfg.Map)
	}
	if m := r.current(); err == nil && m.seq > 0 && o.addr != m.addr {
		err = errDisputed
	}
	if o.err = err; err != nil {
		r.demote(at)
	}
	return o
}

// read parses the replies to the commands of askReplicas. The error is the reason why the sentinel cannot vouch for the
// master.
func (o *opinion) read(replies []resp.Value, dialed func(announced string) string) error {
	master, replicas, sentinels, quorum, info := replies[0], replies[1], replies[2], replies[3], replies[4]
	if err := cmp.Or(master.Err(), replicas.Err(), sentinels.Err()); err != nil {
		return err
	}
	o.addr, o.id, o.epoch = dialed(addrIn(master)), fieldOf(master, "runid"), epochIn(master)
	for v := range replicas.All() {
		o.replicas = append(o.replicas, replica{addrIn(v), fieldOf(v, "runid"), !eligible(v)})
	}
	switch err := quorum.Err(); {
	case flagged(master, ",failover_in_progress,"): // the epoch may be that of the next master already
		o.epoch--
		return errReplacing
	case err != nil && strings.HasPrefix(err.Error(), "NOQUORUM"):
		return errMinority
	case err != nil:
		return err
	case !reached(master): // sentinels hear of a new master through the servers
		return errCutOff
	case !heardMajority(sentinels, justStarted(info)):
		return errUnheard
	}
	return nil
}

const (
	// muteFor is the time in ms without an answer to PING after which a sentinel does not promote a replica. It is a
	// constant of Sentinel.
	muteFor = 5000
	// cutFor is the time in ms since a replica's last answer to PING after which a lost connection counts. A promotion also
	// ends the connections of all sentinels to the replica; but a sentinel sends PING every second, and connects again
	// within a second.
	cutFor = 2500
	// helloWithin is the time in ms without an announcement by sentinel B after which sentinel A may not know of a failover
	// known to B. Announcements come every two seconds.
	helloWithin = 4000
)

// heardMajority reports whether a sentinel has heard from a majority of the sentinels lately, itself included, by its
// description of the others. The description does not count if the sentinel has just started, and so names all as heard.
func heardMajority(others resp.Value, started bool) bool {
	heard, all := 1, 1
	for other := range others.All() {
		all++
		if silent, err := strconv.Atoi(fieldOf(other, "last-hello-message")); !started && (err != nil || silent <= helloWithin) {
			heard++
		}
	}
	return heard > all/2
}

// justStarted reports whether a sentinel has run for less than helloWithin, given its INFO. Without the permission nothing is known.
func justStarted(info resp.Value) bool {
	text, _ := info.Text()
	_, up, known := strings.Cut(text, "uptime_in_seconds:")
	up, _, _ = strings.Cut(up, "\r\n")
	seconds, err := strconv.Atoi(up)
	return known && err == nil && seconds*1000 <= helloWithin
}

// eligible reports whether a sentinel could promote the replica, or may have promoted it just now, given the sentinel's
// description. A sentinel promotes no replica that is down or silent. A replica not yet seen following the master has
// offset 0, and other replicas go first.
func eligible(replica resp.Value) bool {
	return (reached(replica) || justCut(replica)) && fieldOf(replica, "slave-repl-offset") != "0"
}

// justCut reports whether a sentinel has lost the connection to a server that answered a moment ago.
func justCut(server resp.Value) bool {
	mute, err := strconv.Atoi(fieldOf(server, "last-ok-ping-reply"))
	return !flagged(server, "_down,") && err == nil && mute <= cutFor
}

// reached reports whether a sentinel reaches a server, given the sentinel's description.
func reached(server resp.Value) bool {
	mute, err := strconv.Atoi(fieldOf(server, "last-ok-ping-reply"))
	return !flagged(server, "_down,") && !flagged(server, ",disconnected,") && (err != nil || mute <= muteFor)
}

// flagged reports whether the flags of a server contain flag; each flag has a comma on both sides.
func flagged(server resp.Value, flag string) bool {
	return strings.Contains(","+fieldOf(server, "flags")+",", flag)
}

// fieldOf returns a field of a sentinel's description of a server, or "".
func fieldOf(v resp.Value, field string) string {
	pairs, _ := v.Pairs()
	for name, value := range pairs {
		if text, _ := name.Text(); text == field {
			text, _ := value.Text()
			return text
		}
	}
	return ""
}
