// Redsync-redigo is a small program with redsync on redigo.
package main

import (
	"github.com/go-redsync/redsync/v4"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	pool := func(addr string) *redis.Pool {
		return &redis.Pool{MaxIdle: 20, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	}
	probe.Program{
		Open: func(addr string) (func() error, error) {
			p := pool(addr)
			return func() error {
				c := p.Get()
				defer c.Close()
				if _, err := c.Do("SET", "key", "value"); err != nil {
					return err
				}
				_, err := redis.String(c.Do("GET", "key"))
				return err
			}, nil
		},
		Lock: func(addr string) error {
			m := redsync.New(syncredigo.NewPool(pool(addr))).NewMutex("job")
			if err := m.Lock(); err != nil {
				return err
			}
			_, err := m.Unlock()
			return err
		},
	}.Main()
}
