package sentinel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Succession is a sentinel's view of the replicas that may take the master's place. conn.Succession explains the fields.
type Succession struct {
	Master    string
	Addr      string
	Replicas  int
	Away      int
	AwayAddrs []string
	Bare      bool
	Asked     time.Time
	Changes   uint64
}

// Reasons for not believing a sentinel: its view may be outdated.
var (
	errMinority = errors.New("the sentinel does not reach a majority")
	errUnheard  = errors.New("the sentinel has not heard from a majority lately")
	errCutOff   = errors.New("the sentinel does not reach the master")
	errDisputed = errors.New("a sentinel names another master")
)

// furtherFor is the time for all further sentinels, after the first answer about the replicas.
const furtherFor = 250 * time.Millisecond

// knownSuccession returns the last answer, if it is about the known master and was asked for at since or later, of every sentinel if so required.
func (f *Resolver) knownSuccession(since time.Time, every bool) (Succession, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.succession
	last.Changes = f.master.seq
	return last, !last.Asked.IsZero() && last.Addr == f.master.addr && !last.Asked.Before(since) && (f.ofEvery || !every)
}

// noteSuccession stores an answer and sets its Bare.
func (f *Resolver) noteSuccession(s Succession, every bool) Succession {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.succession.Asked.IsZero() {
		f.firstMaster = s.Master
	}
	f.hadReplica = f.hadReplica || s.Replicas > 0
	s.Bare = !f.hadReplica && s.Master == f.firstMaster
	f.succession, f.ofEvery = s, every
	return s
}

// Succession returns a sentinel's answer to a question sent at since or later; for a zero since the last answer is
// enough. Answers of a sentinel without a majority, back from a partition for less than two seconds, cut off from the
// master, or with another master than the known one do not count.
//
// With every, it is the answer with the most replicas of all sentinels that answer within furtherFor of the first.
func (f *Resolver) Succession(ctx context.Context, since time.Time, every bool) (Succession, error) {
	if s, ok := f.knownSuccession(since, every); ok {
		return s, nil
	}
	select {
	case f.inquiry <- struct{}{}:
		defer func() { <-f.inquiry }()
	case <-ctx.Done():
		return Succession{}, f.failure(netfail.Ended(ctx))
	}
	if s, ok := f.knownSuccession(since, every); ok {
		return s, nil
	}
	v := views{epoch: -1, newest: -1, err: errUnknownMaster}
	for _, at := range f.list() {
		if !f.view(ctx, at, &v) {
			f.demote(at) // also if ctx has ended: the next caller would wait for the same sentinel
		} else if v.answers == 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, furtherFor)
			defer cancel()
		}
		if ctx.Err() != nil || v.answers > 0 && !every {
			break
		}
	}
	if v.answers > 0 && v.epoch >= v.newest {
		return f.noteSuccession(v.most, every), nil
	}
	return Succession{}, f.failure(fmt.Errorf("asking the sentinels for replicas: %w", v.err))
}

// views is what the sentinels asked so far have said.
type views struct {
	answers int        // about the known master
	most    Succession // of the answers, the one with the most replicas
	epoch   int64      // the newest epoch of an answer
	newest  int64      // epoch of another master
	err     error      // why the last of the others does not count
}

// view asks one sentinel, and reports whether its answer counts.
func (f *Resolver) view(ctx context.Context, at place, v *views) bool {
	s, epoch, err := f.askSuccession(ctx, at)
	m, _, _ := f.current()
	switch {
	case err != nil:
		v.err = err
		return false
	case m.seq > 0 && s.Addr != m.addr:
		v.newest, v.err = max(v.newest, epoch), errDisputed
		return false
	case epoch < v.newest:
		v.err = errDisputed
		return false
	}
	v.answers, v.epoch = v.answers+1, max(v.epoch, epoch)
	if s.Changes = m.seq; v.answers == 1 || s.Replicas > v.most.Replicas {
		v.most = s
	}
	return true
}

// refreshSuccession asks again, if a caller has asked before.
func (f *Resolver) refreshSuccession(ctx context.Context) {
	f.mu.Lock()
	wanted := !f.succession.Asked.IsZero()
	f.mu.Unlock()
	if wanted {
		_, _ = f.Succession(ctx, time.Now(), false) // on failure the next caller asks again
	}
}

// askSuccession asks one sentinel. It also returns the epoch of the sentinel's configuration; below 0 if missing.
func (f *Resolver) askSuccession(ctx context.Context, at place) (Succession, int64, error) {
	s := Succession{Asked: time.Now()}
	name := f.cfg.Master
	replies, err := f.put(ctx, at,
		resp.Cmd("SENTINEL", "master", name), resp.Cmd("SENTINEL", "replicas", name), resp.Cmd("SENTINEL", "sentinels", name),
		resp.Cmd("SENTINEL", "ckquorum", name))
	if err != nil {
		return s, -1, err
	}
	for _, v := range replies {
		if err := v.Err(); err != nil {
			if strings.HasPrefix(err.Error(), "NOQUORUM") {
				return s, -1, errMinority
			}
			return s, -1, err
		}
	}
	if !reached(replies[0]) { // sentinels hear of a new master through the servers
		return s, -1, errCutOff
	}
	if !heardMajority(replies[2]) {
		return s, -1, errUnheard
	}
	s.Addr = f.cfg.Map(announcedIn(replies[0]))
	s.Master = fieldOf(replies[0], "runid")
	for replica := range replies[1].All() {
		if eligible(replica) {
			s.Replicas++
		} else {
			s.Away++
			s.AwayAddrs = append(s.AwayAddrs, announcedIn(replica))
		}
	}
	return s, epochIn(replies[0]), nil
}

const (
	// muteFor is the time in ms without an answer to PING after which a sentinel does not promote a replica. It is a
	// constant of Sentinel.
	muteFor = 5000
	// cutFor is the time in ms without an answer to PING after which a sentinel without a connection to a replica is cut
	// off from the replica. Before, the replica may have been promoted: a promotion ends the connections of all sentinels.
	// A sentinel asks every second, and connects again within a second.
	cutFor = 2500
	// helloWithin is the time in ms since the last announcement of another sentinel after which the other may know of a
	// failover unknown to the sentinel: two of the periods of Sentinel, which hears of a failover in an announcement.
	helloWithin = 4000
)

// heardMajority reports whether a sentinel has heard the announcements of a majority, itself included, given the sentinel's description of
// the others.
func heardMajority(others resp.Value) bool {
	heard, all := 1, 1
	for other := range others.All() {
		all++
		if silent, err := strconv.Atoi(fieldOf(other, "last-hello-message")); err != nil || silent <= helloWithin {
			heard++
		}
	}
	return heard > all/2
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
