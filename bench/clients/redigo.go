package clients

import (
	"context"

	"github.com/gomodule/redigo/redis"
)

// redigoConns is as many connections as go-redis has here by default. Redigo has no default of its own.
const redigoConns = 20

// RedigoPool is redigo's pool on a server.
func RedigoPool(s Setup) *redis.Pool {
	var options []redis.DialOption
	if s.TLS != nil {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(s.TLS))
	}
	return &redis.Pool{
		MaxIdle: redigoConns, MaxActive: redigoConns, Wait: true,
		Dial: func() (redis.Conn, error) { return redis.Dial(s.Network, s.Addr, options...) },
	}
}

// Redigo is redigo with a pool of 20 connections.
func Redigo(s Setup) (Client, error) {
	return redigo{pool: RedigoPool(s), script: redis.NewScript(1, Source), value: s.Value}, nil
}

type redigo struct {
	pool   *redis.Pool
	script *redis.Script
	value  string
}

func (c redigo) Caller(ctx context.Context) (Caller, error) { return &redigoCaller{c, ctx}, nil }
func (c redigo) Close()                                     { c.pool.Close() }

// redigoCaller waits for a connection under its context. The context does not end a command once begun: redigo would need a
// goroutine per command.
type redigoCaller struct {
	redigo
	ctx context.Context
}

func (c *redigoCaller) conn() (redis.Conn, error) { return c.pool.GetContext(c.ctx) }

func (c *redigoCaller) Get() error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := redis.String(conn.Do("GET", Key))
	return expect(len(text) == len(c.value), err)
}

func (c *redigoCaller) Set() error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := redis.String(conn.Do("SET", Key, c.value))
	return expect(text == "OK", err)
}

func (c *redigoCaller) Eval() error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	defer conn.Close()
	n, err := redis.Int(conn.Do("EVALSHA", digest, 1, Key, Argument))
	return expect(n == scriptResult, err)
}

func (c *redigoCaller) Script() error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	defer conn.Close()
	n, err := redis.Int(c.script.Do(conn, Key, Argument))
	return expect(n == scriptResult, err)
}

func (c *redigoCaller) Batch() error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
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
		if err := expect(len(text) == len(c.value), err); err != nil {
			return err
		}
	}
	return nil
}
