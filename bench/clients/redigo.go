package clients

import (
	"github.com/gomodule/redigo/redis"
)

// redigoConns is as many connections as go-redis has here by default. Redigo has no default of its own.
const redigoConns = 20

// RedigoPool is redigo's pool on a server.
func RedigoPool(network, addr string) *redis.Pool {
	return &redis.Pool{
		MaxIdle: redigoConns, MaxActive: redigoConns, Wait: true,
		Dial: func() (redis.Conn, error) { return redis.Dial(network, addr) },
	}
}

// Redigo is redigo with a pool of 20 connections.
func Redigo(network, addr string, _ int) (Client, error) {
	return redigo{pool: RedigoPool(network, addr), script: redis.NewScript(1, Source)}, nil
}

type redigo struct {
	pool   *redis.Pool
	script *redis.Script
}

func (c redigo) Caller() (Caller, error) { return c, nil }
func (c redigo) Close()                  { c.pool.Close() }

func (c redigo) Get() error {
	conn := c.pool.Get()
	defer conn.Close()
	text, err := redis.String(conn.Do("GET", Key))
	return expect(len(text) == ValueSize, err)
}

func (c redigo) Set() error {
	conn := c.pool.Get()
	defer conn.Close()
	text, err := redis.String(conn.Do("SET", Key, Value))
	return expect(text == "OK", err)
}

func (c redigo) Eval() error {
	conn := c.pool.Get()
	defer conn.Close()
	n, err := redis.Int(conn.Do("EVALSHA", digest, 1, Key, Argument))
	return expect(n == scriptResult, err)
}

func (c redigo) Script() error {
	conn := c.pool.Get()
	defer conn.Close()
	n, err := redis.Int(c.script.Do(conn, Key, Argument))
	return expect(n == scriptResult, err)
}

func (c redigo) Batch() error {
	conn := c.pool.Get()
	defer conn.Close()
	for range BatchSize {
		if err := conn.Send("GET", Key); err != nil {
			return err
		}
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	for range BatchSize {
		text, err := redis.String(conn.Receive())
		if err := expect(len(text) == ValueSize, err); err != nil {
			return err
		}
	}
	return nil
}
