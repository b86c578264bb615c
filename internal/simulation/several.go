package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// severalCount is how many servers there are where each object is on one of several, and a Multi has members of different ones.
const severalCount = 3

// newSeveral are the names of a run with several servers; two of them at least are locks that a Multi takes together.
func newSeveral(d *dice) []*object {
	all := newObjects(d)
	for len(all) < 2 {
		all = append(all, newObjects(d)...)
	}
	for i, o := range all {
		if i < 2 {
			o.family, o.kinds = exclusive, pick(d, mixes)
		}
		o.patience = o.patient()
		o.server = i % severalCount
		o.name = fmt.Sprint("o", i, serverMark, o.server)
	}
	return all
}

// serverMark stands in a name before the number of its server.
const serverMark = "@"

// home is the server of a key, where there are several.
func (w *world) home(key string) *fakeredis.Server {
	_, number, _ := strings.Cut(key, serverMark)
	return w.servers[number[0]-'0']
}

// objectsOn are the objects that a server may have.
func (w *world) objectsOn(srv *fakeredis.Server) (all []*object) {
	for _, o := range w.objects {
		if !w.several || w.servers[o.server] == srv {
			all = append(all, o)
		}
	}
	return all
}

// clientOf is the process's client for an object.
func (p *process) clientOf(o *object) *lock.Client {
	if p.world.several {
		return p.voters[o.server].client
	}
	return p.client
}

// ownerOf is the worker's owner of an object.
func (k *worker) ownerOf(o *object) lock.Owner {
	if k.process.world.several {
		return k.owners[o.server]
	}
	return k.owners[0]
}

// newOwners makes an owner for each client of the process.
func (k *worker) newOwners() {
	if k.process.world.several {
		for _, v := range k.process.voters {
			k.owners = append(k.owners, v.client.NewOwner())
		}
	} else if k.process.client != nil {
		k.owners = append(k.owners, k.process.client.NewOwner())
	}
}

// startSeveral gives a process a client for each of several servers.
func (p *process) startSeveral() {
	p.lease = p.dice.between(2*time.Second, longestLease)
	ids := []string{}
	for i, r := range p.routes {
		pool, err := conn.New(conn.Config{Addr: fmt.Sprint("server", i, ":6379"), Dial: r.dial, Timeout: pick(p.dice, []time.Duration{0, time.Second})})
		if err != nil {
			panic(err)
		}
		client, err := lock.New(pool, p.config())
		if err != nil {
			panic(err)
		}
		p.voters = append(p.voters, &voter{pool, client})
		ids = append(ids, client.ID())
	}
	p.world.history.add(p.name, "", "starts: several servers, lease %v, clients %s", p.lease, strings.Join(ids, " "))
}

// closeSeveral closes the clients of several servers at once.
func (p *process) closeSeveral() {
	w, began := p.world, time.Now()
	errs, took := make([]error, len(p.voters)), make([]time.Duration, len(p.voters))
	var wg sync.WaitGroup
	for i, v := range p.voters {
		wg.Go(func() {
			errs[i] = v.client.Close()
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	for i, err := range errs {
		w.history.add(p.name, "", "Close of the client of server %d = %v", i, err)
		if took[i] > closeTime+w.slack {
			w.violate(nil, "%s: Close of the client of server %d took %v", p.name, i, took[i])
		}
		w.closed(p, began, took[i], err)
	}
	p.wg.Wait()
	for _, v := range p.voters {
		_ = v.pool.Close()
	}
}
