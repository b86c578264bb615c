// Redigo is a small program with redigo.
package main

import (
	"github.com/gomodule/redigo/redis"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	probe.Program{Open: func(addr string) (func() error, error) {
		pool := &redis.Pool{MaxIdle: 20, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
		return func() error {
			c := pool.Get()
			defer c.Close()
			if _, err := c.Do("SET", "key", "value"); err != nil {
				return err
			}
			_, err := redis.String(c.Do("GET", "key"))
			return err
		}, nil
	}}.Main()
}
