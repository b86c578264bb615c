package clients

import (
	"github.com/redis/go-redis/v9"
)

// GoRedis is go-redis with nothing set but the network.
func GoRedis(network, addr string, _ int) (Client, error) {
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	return &goRedis{Cmdable: c, script: redis.NewScript(Source), close: c.Close}, c.Ping(background).Err()
}

// GoRedisAutopipe is go-redis' blocking autopipeline, with its defaults.
func GoRedisAutopipe(network, addr string, _ int) (Client, error) {
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	auto, err := c.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return &goRedis{Cmdable: auto, script: redis.NewScript(Source), close: c.Close}, c.Ping(background).Err()
}

type goRedis struct {
	redis.Cmdable
	script *redis.Script
	close  func() error
}

func (c *goRedis) Caller() (Caller, error) { return goRedisCaller{c}, nil }
func (c *goRedis) Close()                  { c.close() }

type goRedisCaller struct{ c *goRedis }

func (g goRedisCaller) Get() error {
	text, err := g.c.Get(background, Key).Result()
	return expect(len(text) == ValueSize, err)
}

func (g goRedisCaller) Set() error {
	text, err := g.c.Set(background, Key, Value, 0).Result()
	return expect(text == "OK", err)
}

func (g goRedisCaller) Eval() error {
	n, err := g.c.EvalSha(background, digest, []string{Key}, Argument).Int()
	return expect(n == scriptResult, err)
}

func (g goRedisCaller) Script() error {
	n, err := g.c.script.Run(background, g.c, []string{Key}, Argument).Int()
	return expect(n == scriptResult, err)
}

func (g goRedisCaller) Batch() error {
	p := g.c.Pipeline()
	for range BatchSize {
		p.Get(background, Key)
	}
	replies, err := p.Exec(background)
	if err != nil {
		return err
	}
	for _, r := range replies {
		text, err := r.(*redis.StringCmd).Result()
		if err := expect(len(text) == ValueSize, err); err != nil {
			return err
		}
	}
	return nil
}
