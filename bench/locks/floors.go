package locks

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// do sends a prebuilt request.
type do func([]byte) (floor.Reply, error)

// conns are the connections of a floor: a connection for each lock, or a single connection for all.
type conns struct {
	network, addr string
	mux           *floor.Mux
	list          []*floor.Conn
	owners        atomic.Int64
}

func openConns(env measure.Env, shared bool) (*conns, error) {
	c := &conns{network: env.Network, addr: env.Addr}
	err := load(env.Network, env.Addr)
	if err == nil && shared {
		c.mux, err = floor.DialMux(env.Network, env.Addr, nil)
	}
	return c, err
}

func (c *conns) dial() (do, error) {
	if c.mux != nil {
		return c.mux.Caller().Do, nil
	}
	one, err := floor.Dial(c.network, c.addr, nil)
	if err != nil {
		return nil, err
	}
	c.list = append(c.list, one)
	return one.Do, nil
}

// owner is a name unique among processes.
func (c *conns) owner() string { return fmt.Sprintf("%036d:%d", os.Getpid(), c.owners.Add(1)) }

func (c *conns) Close() {
	for _, one := range c.list {
		one.Close()
	}
	if c.mux != nil {
		c.mux.Close()
	}
}

// SetDelete is SET NX and a compare-and-delete over a connection for each caller. Callers of a process stand in line for it;
// processes poll.
func SetDelete(env measure.Env, _ int) (Client, error) {
	c, err := openConns(env, false)
	return &setDelete{conns: c, lines: map[string]chan struct{}{}}, err
}

type setDelete struct {
	*conns
	lines map[string]chan struct{} // by name: holds a token while nobody of this process has the lock
}

func (c *setDelete) Locker(name string) (Locker, error) {
	d, err := c.dial()
	if err != nil {
		return nil, err
	}
	if c.lines[name] == nil {
		c.lines[name] = make(chan struct{}, 1)
		c.lines[name] <- struct{}{}
	}
	owner := c.owner()
	return &setDeleteLock{
		do: d, line: c.lines[name],
		set:    floor.Request("SET", name, owner, "NX", "PX", leaseMillis),
		delete: floor.Request("EVALSHA", digest(deleteSource), "1", name, owner),
	}, nil
}

type setDeleteLock struct {
	do          do
	line        chan struct{}
	set, delete []byte
}

func (l *setDeleteLock) Lock() (Held, error) {
	<-l.line
	for {
		r, err := l.do(l.set)
		if err != nil || r.Kind == '+' {
			return l, err
		}
		pollPause()
	}
}

func (l *setDeleteLock) Unlock() error {
	r, err := l.do(l.delete)
	l.line <- struct{}{}
	if err == nil && r.N != 1 {
		return errLost
	}
	return err
}

var errLost = errors.New("locks: the lock was lost")

// Blpop hands a token on by BLPOP and RPUSH. It is no lock, as nothing returns a dead holder's token: it bounds the speed of
// hand-overs.
func Blpop(env measure.Env, _ int) (Client, error) {
	c, err := openConns(env, false)
	return blpop{c}, err
}

type blpop struct{ *conns }

func (c blpop) Locker(name string) (Locker, error) {
	d, err := c.dial()
	if err != nil {
		return nil, err
	}
	const first = `if redis.call('set', KEYS[2], 1, 'nx') then redis.call('rpush', KEYS[1], 't') end return 1`
	_, err = d(floor.Request("EVAL", first, "2", name, name+":made"))
	return &blpopLock{do: d, pop: floor.Request("BLPOP", name, "0"), push: floor.Request("RPUSH", name, "t")}, err
}

type blpopLock struct {
	do        do
	pop, push []byte
}

func (l *blpopLock) Lock() (Held, error) {
	_, err := l.do(l.pop)
	return l, err
}

func (l *blpopLock) Unlock() error {
	_, err := l.do(l.push)
	return err
}

// watched is the waiting side of Redisson's protocol: a subscription for a name, each message a permit for a single waiter.
type watched struct {
	sub     *floor.Conn
	permits chan struct{}
	reading sync.WaitGroup
}

// watch subscribes and returns after the confirmation.
func watch(network, addr, channel string) (*watched, error) {
	sub, err := floor.Dial(network, addr, nil)
	if err != nil {
		return nil, err
	}
	if _, err := sub.Do(floor.Request("SUBSCRIBE", channel)); err != nil {
		return nil, err
	}
	w := &watched{sub: sub, permits: make(chan struct{}, 1<<16)}
	w.reading.Go(func() {
		for {
			if _, _, err := sub.Message(); err != nil {
				return
			}
			select {
			case w.permits <- struct{}{}:
			default:
			}
		}
	})
	return w, nil
}

func (w *watched) close() {
	w.sub.Close()
	w.reading.Wait()
}
