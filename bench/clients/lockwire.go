package clients

import (
	"context"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

var background = context.Background()

// Lockwire is our own, with nothing set.
func Lockwire(s Setup) (Client, error) {
	pool, err := conn.Open(background, conn.Config{Network: s.Network, Addr: s.Addr, TLS: s.TLS})
	if err != nil {
		return nil, err
	}
	return &lockwire{pool: pool, script: script.New(Source), value: s.Value}, nil
}

type lockwire struct {
	pool   *conn.Pool
	script *script.Script
	value  string
}

func (c *lockwire) Caller(ctx context.Context) (Caller, error) { return &lockwireCaller{c, ctx}, nil }
func (c *lockwire) Close()                                     { c.pool.Close() }

type lockwireCaller struct {
	*lockwire
	ctx context.Context
}

func (c *lockwireCaller) Get() error {
	v, err := c.pool.Do(c.ctx, "GET", Key)
	if err != nil {
		return err
	}
	text, err := v.Text()
	return expect(len(text) == len(c.value), err)
}

func (c *lockwireCaller) Set() error {
	v, err := c.pool.Do(c.ctx, "SET", Key, c.value)
	if err != nil {
		return err
	}
	text, err := v.Text()
	return expect(text == "OK", err)
}

func (c *lockwireCaller) Eval() error {
	return c.result(c.pool.Do(c.ctx, "EVALSHA", digest, 1, Key, Argument))
}

func (c *lockwireCaller) Script() error {
	return c.result(c.script.Run(c.ctx, c.pool, []string{Key}, Argument))
}

func (c *lockwireCaller) result(v resp.Value, err error) error {
	if err != nil {
		return err
	}
	n, err := v.Int()
	return expect(n == int64(scriptResult), err)
}

func (c *lockwireCaller) Batch() error {
	// The batch is the same each time, but made as a user would make it.
	batch := make([]resp.Command, 0, BatchSize)
	for range BatchSize {
		batch = append(batch, resp.Cmd("GET", Key).On(Key))
	}
	values, err := c.pool.SendBatch(c.ctx, batch)
	if err != nil {
		return err
	}
	for _, v := range values {
		text, err := v.Text()
		if err := expect(len(text) == len(c.value), err); err != nil {
			return err
		}
	}
	return nil
}
