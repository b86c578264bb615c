package locks

import (
	"context"

	"github.com/redis/rueidis/rueidislock"

	"github.com/lockwire/lockwire/bench/clients"
	"github.com/lockwire/lockwire/bench/measure"
)

// Rueidislock is rueidislock with its defaults but for the lease and for how long an attempt may take.
func Rueidislock(env measure.Env, _ int) (Client, error) {
	return openRueidislock(env, rueidislock.LockerOption{})
}

// RueidislockOne is rueidislock with a single key for each lock in place of three, which suits a single server.
func RueidislockOne(env measure.Env, _ int) (Client, error) {
	return openRueidislock(env, rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})
}

func openRueidislock(env measure.Env, o rueidislock.LockerOption) (Client, error) {
	o.ClientOption = clients.RueidisOption(clients.Setup{Network: env.Network, Addr: env.Addr})
	o.KeyValidity = Lease
	// By default rueidislock gives up an attempt after 20 ms, on a busy machine often after its success, which then goes
	// unnoticed.
	o.TryNextAfter = Lease / 2
	locker, err := rueidislock.NewLocker(o)
	return rueidislockClient{locker}, err
}

type rueidislockClient struct{ locker rueidislock.Locker }

func (c rueidislockClient) Locker(name string) (Locker, error) {
	return rueidislockLock{c.locker, name}, nil
}

func (c rueidislockClient) Close() { c.locker.Close() }

type rueidislockLock struct {
	locker rueidislock.Locker
	name   string
}

func (l rueidislockLock) Lock() (Held, error) {
	_, cancel, err := l.locker.WithContext(background, l.name)
	return rueidislockHeld(cancel), err
}

type rueidislockHeld context.CancelFunc

func (h rueidislockHeld) Unlock() error { h(); return nil }
