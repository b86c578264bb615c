package locks

import (
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	syncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/redis/go-redis/v9"

	"github.com/lockwire/lockwire/bench/clients"
	"github.com/lockwire/lockwire/bench/measure"
)

// RedsyncGoRedis is redsync on go-redis, with all servers. It tries until it has the lock, with redsync's delays.
func RedsyncGoRedis(env measure.Env, _ int) (Client, error) {
	var pools []syncredis.Pool
	var clients []*redis.Client
	for _, addr := range env.Servers() {
		c := redis.NewClient(&redis.Options{Network: env.Network, Addr: addr})
		clients, pools = append(clients, c), append(pools, syncgoredis.NewPool(c))
	}
	return newRedsync(func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}, pools...), nil
}

// RedsyncRedigo is redsync on redigo, with 20 connections.
func RedsyncRedigo(env measure.Env, _ int) (Client, error) {
	pool := clients.RedigoPool(clients.Setup{Network: env.Network, Addr: env.Addr})
	return newRedsync(pool.Close, syncredigo.NewPool(pool)), nil
}

func newRedsync(close func() error, pools ...syncredis.Pool) Client {
	return redsyncClient{redsync.New(pools...), close}
}

type redsyncClient struct {
	sync  *redsync.Redsync
	close func() error
}

func (c redsyncClient) Locker(name string) (Locker, error) { return &redsyncLock{c.sync, name}, nil }

func (c redsyncClient) Close() { c.close() }

// redsyncLock makes a Mutex for each call.
type redsyncLock struct {
	sync *redsync.Redsync
	name string
}

func (l *redsyncLock) Lock() (Held, error) {
	m := l.sync.NewMutex(l.name, redsync.WithExpiry(Lease), redsync.WithTries(math.MaxInt))
	return redsyncHeld{m}, m.LockContext(background)
}

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Unlock() error {
	ok, err := h.Mutex.UnlockContext(background)
	if err == nil && !ok {
		return errors.New("locks: redsync's lock was lost")
	}
	return err
}
