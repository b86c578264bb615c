package locks

import (
	"sync"
	"time"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// Redisson is Redisson's protocol by hand, over a connection for each caller.
func Redisson(env measure.Env, _ int) (Client, error) { return openRedisson(env, false) }

// SlowRedisson is Redisson by one of [Protocols], for a client that pauses between a wake-up and its next request.
func SlowRedisson(p Protocol, late time.Duration) Open {
	return func(env measure.Env, _ int) (Client, error) {
		c, err := openRedisson(env, false)
		if err != nil {
			return nil, err
		}
		c.protocol, c.late = p, late
		return c, nil
	}
}

// RedissonMux is Redisson over a single connection shared by all callers.
func RedissonMux(env measure.Env, _ int) (Client, error) { return openRedisson(env, true) }

func openRedisson(env measure.Env, shared bool) (*redisson, error) {
	c, err := openConns(env, shared)
	return &redisson{conns: c, watched: map[string]*watched{}, protocol: lockProtocol}, err
}

type redisson struct {
	*conns
	protocol Protocol
	late     time.Duration // from a message to the next request

	mu      sync.Mutex
	watched map[string]*watched // by name
}

func (c *redisson) Locker(name string) (Locker, error) {
	d, err := c.dial()
	if err != nil {
		return nil, err
	}
	owner := c.owner()
	if c.protocol.counted {
		if _, err := d(floor.Request("SET", name, "1", "NX")); err != nil {
			return nil, err
		}
	}
	return &redissonLock{
		client: c, name: name, do: d,
		acquire: c.protocol.request(c.protocol.acquire, name, owner), release: c.protocol.request(c.protocol.release, name, owner),
	}, nil
}

func (c *redisson) Close() {
	for _, w := range c.watched {
		w.close()
	}
	c.conns.Close()
}

// watch returns the subscription for a name, made at the first call.
func (c *redisson) watch(name string) (*watched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, err := c.watched[name], error(nil)
	if w == nil {
		if w, err = watch(c.network, c.addr, c.protocol.channel+":{"+name+"}"); err == nil {
			c.watched[name] = w
		}
	}
	return w, err
}

type redissonLock struct {
	client           *redisson
	name             string
	do               do
	acquire, release []byte
}

func (l *redissonLock) Lock() (Held, error) {
	if r, err := l.do(l.acquire); err != nil || r.Kind == '_' {
		return l, err
	}
	w, err := l.client.watch(l.name)
	if err != nil {
		return nil, err
	}
	for {
		r, err := l.do(l.acquire)
		if err != nil || r.Kind == '_' {
			return l, err
		}
		select {
		case <-w.permits:
			if l.client.late > 0 {
				time.Sleep(l.client.late)
			}
		case <-time.After(time.Duration(r.N) * time.Millisecond):
		}
	}
}

func (l *redissonLock) Unlock() error {
	r, err := l.do(l.release)
	if err == nil && r.N != 1 {
		return errLost
	}
	return err
}

// pollPause is the time between two looks of a polling floor.
func pollPause() { time.Sleep(time.Millisecond) }
