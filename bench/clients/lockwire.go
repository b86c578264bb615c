package clients

import (
	"context"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

var background = context.Background()

// Lockwire is our own, with nothing set.
func Lockwire(network, addr string, _ int) (Client, error) {
	pool, err := conn.Open(background, conn.Config{Network: network, Addr: addr})
	if err != nil {
		return nil, err
	}
	c := &lockwire{pool: pool, script: script.New(Source)}
	for range BatchSize {
		c.batch = append(c.batch, resp.Cmd("GET", Key).On(Key))
	}
	return c, nil
}

type lockwire struct {
	pool   *conn.Pool
	script *script.Script
	batch  []resp.Command
}

func (c *lockwire) Caller() (Caller, error) { return c, nil }
func (c *lockwire) Close()                  { c.pool.Close() }

func (c *lockwire) Get() error {
	v, err := c.pool.Do(background, "GET", Key)
	if err != nil {
		return err
	}
	text, err := v.Text()
	return expect(len(text) == ValueSize, err)
}

func (c *lockwire) Set() error {
	v, err := c.pool.Do(background, "SET", Key, Value)
	if err != nil {
		return err
	}
	text, err := v.Text()
	return expect(text == "OK", err)
}

func (c *lockwire) Eval() error {
	return c.result(c.pool.Do(background, "EVALSHA", digest, 1, Key, Argument))
}

func (c *lockwire) Script() error {
	return c.result(c.script.Run(background, c.pool, []string{Key}, Argument))
}

func (c *lockwire) result(v resp.Value, err error) error {
	if err != nil {
		return err
	}
	n, err := v.Int()
	return expect(n == int64(scriptResult), err)
}

func (c *lockwire) Batch() error {
	// The batch is the same each time, but made as a user would make it.
	batch := make([]resp.Command, 0, BatchSize)
	for range BatchSize {
		batch = append(batch, resp.Cmd("GET", Key).On(Key))
	}
	values, err := c.pool.SendBatch(background, batch)
	if err != nil {
		return err
	}
	for _, v := range values {
		text, err := v.Text()
		if err := expect(len(text) == ValueSize, err); err != nil {
			return err
		}
	}
	return nil
}
