package clients

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// Rueidis is rueidis with nothing set but the network.
func Rueidis(network, addr string, _ int) (Client, error) { return openRueidis(network, addr, 0) }

// RueidisDelay is rueidis with the flush delay that its documentation suggests.
func RueidisDelay(network, addr string, _ int) (Client, error) {
	return openRueidis(network, addr, 20*time.Microsecond)
}

// RueidisOption connects rueidis to a server.
func RueidisOption(network, addr string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}
	if network == "unix" {
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		}
	}
	return o
}

func openRueidis(network, addr string, delay time.Duration) (Client, error) {
	o := RueidisOption(network, addr)
	o.MaxFlushDelay = delay
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	return &rueidisClient{Client: c, script: rueidis.NewLuaScript(Source)}, nil
}

type rueidisClient struct {
	rueidis.Client
	script *rueidis.Lua
}

func (c *rueidisClient) Caller() (Caller, error) { return rueidisCaller{c}, nil }

type rueidisCaller struct{ c *rueidisClient }

func (r rueidisCaller) Get() error {
	text, err := r.c.Do(background, r.c.B().Get().Key(Key).Build()).ToString()
	return expect(len(text) == ValueSize, err)
}

func (r rueidisCaller) Set() error {
	text, err := r.c.Do(background, r.c.B().Set().Key(Key).Value(Value).Build()).ToString()
	return expect(text == "OK", err)
}

func (r rueidisCaller) Eval() error {
	n, err := r.c.Do(background, r.c.B().Evalsha().Sha1(digest).Numkeys(1).Key(Key).Arg(Argument).Build()).ToInt64()
	return expect(n == int64(scriptResult), err)
}

func (r rueidisCaller) Script() error {
	n, err := r.c.script.Exec(background, r.c.Client, []string{Key}, []string{Argument}).ToInt64()
	return expect(n == int64(scriptResult), err)
}

func (r rueidisCaller) Batch() error {
	commands := make([]rueidis.Completed, 0, BatchSize)
	for range BatchSize {
		commands = append(commands, r.c.B().Get().Key(Key).Build())
	}
	for _, reply := range r.c.DoMulti(background, commands...) {
		text, err := reply.ToString()
		if err := expect(len(text) == ValueSize, err); err != nil {
			return err
		}
	}
	return nil
}
