package sentinel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
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

// furtherFor is the time for all other sentinels, after the first answer about the replicas.
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
// enough. Answers of a sentinel without a majority, back from a partition for less than two seconds, started less than four seconds ago, cut off from the
// master, or with another master than the known one do not count.
//
// With every, all sentinels are asked at once, and the answer has the replicas of all answers within furtherFor of the first.
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
	ask := f.askInTurn
	if every {
		ask = f.askAll
	}
	s, err := f.verdict(ask(ctx))
	switch {
	case err != nil:
		return Succession{}, f.failure(fmt.Errorf("asking the sentinels for replicas: %w", err))
	case every && ctx.Err() != nil: // the others had less time than furtherFor
		return Succession{}, f.failure(netfail.Ended(ctx))
	}
	return f.noteSuccession(s, every), nil
}

// opinion is the answer of one sentinel. Its Addr is empty if there is none.
type opinion struct {
	Succession
	epoch int64 // of the sentinel's configuration; below 0 if missing
	err   error // why the sentinel cannot vouch for the master
}

// askInTurn asks one sentinel after the other until an opinion counts.
func (f *Resolver) askInTurn(ctx context.Context) (all []opinion) {
	for _, at := range f.list() {
		all = append(all, f.askSuccession(ctx, at))
		if _, err := f.verdict(all); err == nil || ctx.Err() != nil {
			break
		}
	}
	return all
}

// askAll asks all sentinels at once.
func (f *Resolver) askAll(ctx context.Context) (all []opinion) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opinions := make(chan opinion)
	var asking sync.WaitGroup
	defer asking.Wait()
	list := f.list()
	for _, at := range list {
		asking.Go(func() { opinions <- f.askSuccession(ctx, at) })
	}
	var rest *time.Timer // ends the questions that are left
	for range list {
		o := <-opinions
		if o.err == nil && rest == nil {
			rest = time.AfterFunc(furtherFor, cancel)
			defer rest.Stop()
		}
		all = append(all, o)
	}
	return all
}

// verdict returns the known master's succession by the opinions, or an error if none counts. A sentinel that cannot vouch for the master may
// promote a replica, so its replicas count.
func (f *Resolver) verdict(all []opinion) (s Succession, err error) {
	m, _, _ := f.current()
	var vouched bool
	var replicas []string
	newest, other := int64(-1), int64(-2) // epochs of those that vouch for the master, and of those that name another one
	err = errUnknownMaster
	for _, o := range all {
		switch {
		case o.Addr != "" && m.seq > 0 && o.Addr != m.addr:
			other, err = max(other, o.epoch), errDisputed
			continue
		case o.err != nil:
			err = o.err
		default:
			newest = max(newest, o.epoch)
			if !vouched {
				vouched, s = true, o.Succession
			}
		}
		replicas = append(replicas, o.ReplicaAddrs...)
	}
	switch {
	case !vouched:
		return s, err
	case newest <= other:
		return s, errDisputed
	}
	slices.Sort(replicas)
	s.ReplicaAddrs = slices.Compact(replicas)
	s.Replicas, s.Changes = len(s.ReplicaAddrs), m.seq
	return s, nil
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

// askSuccession asks one sentinel. One that cannot vouch for the master is asked last next time, also if ctx has ended: the next caller would
// wait for the same sentinel.
func (f *Resolver) askSuccession(ctx context.Context, at place) opinion {
	o := opinion{Succession: Succession{Asked: time.Now()}, epoch: -1}
	name := f.cfg.Master
	replies, err := f.put(ctx, at,
		resp.Cmd("SENTINEL", "master", name), resp.Cmd("SENTINEL", "replicas", name), resp.Cmd("SENTINEL", "sentinels", name),
		resp.Cmd("SENTINEL", "ckquorum", name), resp.Cmd("INFO", "server"))
	if err == nil {
		err = o.read(replies, f.cfg.Map)
	}
	if m, _, _ := f.current(); err == nil && m.seq > 0 && o.Addr != m.addr {
		err = errDisputed
	}
	if o.err = err; err != nil {
		f.demote(at)
	}
	return o
}

// read reads the replies of a sentinel. The error is why it cannot vouch for the master.
func (o *opinion) read(replies []resp.Value, dialed func(announced string) string) error {
	master, replicas, sentinels, quorum, info := replies[0], replies[1], replies[2], replies[3], replies[4]
	if err := cmp.Or(master.Err(), replicas.Err(), sentinels.Err()); err != nil {
		return err
	}
	o.Addr, o.Master, o.epoch = dialed(announcedIn(master)), fieldOf(master, "runid"), epochIn(master)
	for replica := range replicas.All() {
		if eligible(replica) {
			o.ReplicaAddrs = append(o.ReplicaAddrs, announcedIn(replica))
		} else {
			o.Away++
			o.AwayAddrs = append(o.AwayAddrs, announcedIn(replica))
		}
	}
	switch err := quorum.Err(); {
	case flagged(master, ",failover_in_progress,"): // it still describes the former master, perhaps with the epoch of the next
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
	// cutFor is the time in ms without an answer to PING after which a sentinel without a connection to a replica is cut
	// off from the replica. Before, the replica may have been promoted: a promotion ends the connections of all sentinels.
	// A sentinel asks every second, and connects again within a second.
	cutFor = 2500
	// helloWithin is the time in ms since the last announcement of another sentinel after which the other may know of a
	// failover unknown to the sentinel: two of the periods of Sentinel, which hears of a failover in an announcement.
	helloWithin = 4000
)

// heardMajority reports whether a sentinel has heard the announcements of a majority, itself included, given the sentinel's description of
// the others. A sentinel that has just started pretends to have heard all.
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
