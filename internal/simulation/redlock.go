package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// voters is how many servers a Redlock has.
const voters = 5

// votesAfter is the age of a server with a vote: the quarantine, in whole seconds, and a second more.
const votesAfter = longestLease + 2*time.Second

// voter is a process's client and lock for a server.
type voter struct {
	pool   *conn.Pool
	client *lock.Client
}

// newVotes are the names of a run with five servers.
func newVotes(d *dice) (all []*object) {
	for i := range 1 + d.n(3) {
		o := &object{name: fmt.Sprint("v", i), family: exclusive, kinds: []string{reentrant}, orphans: map[string]orphan{}}
		if d.oneIn(3) {
			o.family, o.kinds = plain, nil
		}
		o.patience = votePatience
		all = append(all, o)
	}
	return all
}

// votePatience is for how long all five may have nothing while somebody asks again and again: of many who ask at once none may
// get a majority.
const votePatience = 8 * time.Second

// startVoters gives a process a client for each server, and the Redlocks.
func (p *process) startVoters() {
	w := p.world
	p.lease = p.dice.between(2*time.Second, longestLease)
	cfg := lock.RedlockConfig{Quarantine: longestLease}
	if w.latency > time.Millisecond {
		cfg.NodeTimeout = 10 * w.latency
	}
	ids := []string{}
	for i, r := range p.routes {
		pool, err := conn.New(conn.Config{Addr: fmt.Sprint("server", i, ":6379"), Dial: r.dial, Timeout: pick(p.dice, []time.Duration{0, time.Second})})
		if err != nil {
			panic(err)
		}
		client, err := lock.New(pool, lock.Config{Lease: p.lease})
		if err != nil {
			panic(err)
		}
		p.voters = append(p.voters, &voter{pool, client})
		ids = append(ids, client.ID())
	}
	p.redlocks = map[string]*lock.Redlock{}
	for _, o := range w.objects {
		var nodes []lock.Member
		for _, v := range p.voters {
			if o.family == plain {
				nodes = append(nodes, v.client.Plain(o.name))
			} else {
				nodes = append(nodes, v.client.Reentrant(o.name))
			}
		}
		redlock, err := lock.NewRedlock(cfg, nodes...)
		if err != nil {
			panic(err)
		}
		p.redlocks[o.name] = redlock
	}
	w.history.add(p.name, "", "starts: Redlock, lease %v, clients %s", p.lease, strings.Join(ids, " "))
}

// vote takes and releases a Redlock.
func (k *worker) vote(o *object) {
	redlock := k.process.redlocks[o.name]
	if k.dice.oneIn(60) {
		k.force(o, "Redlock", redlock.ForceUnlock)
		return
	}
	if !k.pass() {
		return
	}
	r := k.request(o, "Redlock", false)
	defer r.cancel()
	k.begin(o, r.limit, !r.try, "Redlock%s", r.text)
	call := redlock.Lock
	if r.try {
		call = redlock.TryLock
	}
	lease, err := call(r.ctx, r.opts...)
	if !k.end(err) || err != nil {
		return
	}
	h := k.took(o, lease, r.hold(hold{}))
	if h == nil {
		return
	}
	k.work(h)
	k.giveBack(h)
}

// majorityHas reports whether a majority of the servers has the hold, or has forgotten it and has no vote for a while.
func (w *world) majorityHas(h *hold) bool {
	have := 0
	for i, v := range h.worker.process.voters {
		srv := w.servers[i]
		if slices.ContainsFunc(w.forgot[srv], func(at time.Time) bool { return !at.Before(h.since) }) {
			have++
			continue
		}
		for _, member := range h.lease.Members() {
			if h.object.family == exclusive && strings.HasPrefix(member.Owner(), v.client.ID()) && srv.Do("HEXISTS", h.object.name, member.Owner()) == any(int64(1)) ||
				h.object.family == plain && srv.Do("GET", h.object.name) == any(member.Owner()) {
				have++
				break
			}
		}
	}
	return have > voters/2
}

// forgotSince reports whether any server has lost all its data since a time.
func (w *world) forgotSince(since time.Time) bool {
	for _, times := range w.forgot {
		if slices.ContainsFunc(times, func(at time.Time) bool { return !at.Before(since) }) {
			return true
		}
	}
	return false
}

// closeVoters closes the clients of all servers at once.
func (p *process) closeVoters() {
	w, began := p.world, time.Now()
	errs := make([]error, len(p.voters))
	var wg sync.WaitGroup
	for i, v := range p.voters {
		wg.Go(func() { errs[i] = v.client.Close() })
	}
	wg.Wait()
	took := time.Since(began)
	w.history.add(p.name, "", "Close = %v", errors.Join(errs...))
	if took > closeTime+w.slack {
		w.violate(nil, "%s: Close took %v", p.name, took)
	}
	for _, err := range errs {
		if gaveUp, ok := errors.AsType[*lock.CloseError](err); err != nil && (!ok || gaveUp == nil) {
			w.violate(nil, "%s: Close = %v", p.name, err)
		}
	}
	p.wg.Wait()
	for _, v := range p.voters {
		_ = v.pool.Close()
	}
}

// dropVoters ends the goroutines of a crashed process.
func (p *process) dropVoters() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var wg sync.WaitGroup
	for _, v := range p.voters {
		wg.Go(func() {
			_ = v.client.CloseContext(over)
			_ = v.pool.Close()
		})
	}
	wg.Wait()
}

// dump is the state of an object on each server.
func (w *world) dump(o *object) string {
	text := ""
	for i, srv := range w.servers {
		text += fmt.Sprintf("server %d: %s ", i, stateAt(srv, o))
	}
	return text
}

// stateAt is the state of an object on a server.
func stateAt(srv *fakeredis.Server, o *object) string {
	key, ok := srv.Key(o.name)
	if !ok {
		return "nothing;"
	}
	return key.String() + ";"
}
