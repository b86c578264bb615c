package clients

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// GoRedis is go-redis with nothing set but the network.
func GoRedis(s Setup) (Client, error) {
	c := redis.NewClient(s.goRedis())
	return &goRedis{Cmdable: c, script: redis.NewScript(Source), value: s.Value, close: c.Close}, c.Ping(background).Err()
}

// GoRedisAutopipe is go-redis' blocking autopipeline, with default settings.
func GoRedisAutopipe(s Setup) (Client, error) {
	c := redis.NewClient(s.goRedis())
	auto, err := c.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return &goRedis{Cmdable: auto, script: redis.NewScript(Source), value: s.Value, close: c.Close}, c.Ping(background).Err()
}

func (s Setup) goRedis() *redis.Options {
	return &redis.Options{Network: s.Network, Addr: s.Addr, TLSConfig: s.TLS}
}

type goRedis struct {
	redis.Cmdable
	value  string
	script *redis.Script
	close  func() error
}

func (c *goRedis) Caller(ctx context.Context) (Caller, error) { return &goRedisCaller{c, ctx}, nil }
func (c *goRedis) Close()                                     { c.close() }

type goRedisCaller struct {
	c   *goRedis
	ctx context.Context
}

func (g *goRedisCaller) Get() error {
	text, err := g.c.Get(g.ctx, Key).Result()
	return expect(len(text) == len(g.c.value), err)
}

func (g *goRedisCaller) Set() error {
	text, err := g.c.Set(g.ctx, Key, g.c.value, 0).Result()
	return expect(text == "OK", err)
}

func (g *goRedisCaller) Eval() error {
	n, err := g.c.EvalSha(g.ctx, digest, []string{Key}, Argument).Int()
	return expect(n == scriptResult, err)
}

func (g *goRedisCaller) Script() error {
	n, err := g.c.script.Run(g.ctx, g.c, []string{Key}, Argument).Int()
	return expect(n == scriptResult, err)
}

func (g *goRedisCaller) Batch() error {
	p := g.c.Pipeline()
	for range BatchSize {
		p.Get(g.ctx, Key)
	}
	replies, err := p.Exec(g.ctx)
	if err != nil {
		return err
	}
	for _, r := range replies {
		text, err := r.(*redis.StringCmd).Result()
		if err := expect(len(text) == len(g.c.value), err); err != nil {
			return err
		}
	}
	return nil
}
