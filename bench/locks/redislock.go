package locks

import (
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockwire/lockwire/bench/measure"
)

// Redislock is redislock, which has no way to wait but to try again after some time.
func Redislock(every time.Duration) Open {
	return func(env measure.Env, _ int) (Client, error) {
		c := redis.NewClient(&redis.Options{Network: env.Network, Addr: env.Addr})
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
		return redislockClient{c, redislock.New(c), options}, nil
	}
}

type redislockClient struct {
	redis   *redis.Client
	locks   *redislock.Client
	options *redislock.Options
}

func (c redislockClient) Locker(name string) (Locker, error) { return redislockLock{c, name}, nil }
func (c redislockClient) Close()                             { c.redis.Close() }

type redislockLock struct {
	redislockClient
	name string
}

func (l redislockLock) Lock() (Held, error) {
	// Without a deadline redislock would give up after a lease.
	held, err := l.locks.Obtain(untilTomorrow{background}, l.name, Lease, l.options)
	return redislockHeld{held}, err
}

type redislockHeld struct{ *redislock.Lock }

func (h redislockHeld) Unlock() error { return h.Release(background) }
