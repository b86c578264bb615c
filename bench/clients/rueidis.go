package clients

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// Rueidis is rueidis with nothing set but the network.
func Rueidis(s Setup) (Client, error) { return openRueidis(s, 0) }

// RueidisDelay is rueidis with the flush delay suggested by its documentation.
func RueidisDelay(s Setup) (Client, error) {
	return openRueidis(s, 20*time.Microsecond)
}

// RueidisOption connects rueidis to a server.
func RueidisOption(s Setup) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, TLSConfig: s.TLS}
	if s.Network == "unix" {
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, s.Network, addr)
		}
	}
	return o
}

func openRueidis(s Setup, delay time.Duration) (Client, error) {
	o := RueidisOption(s)
	o.MaxFlushDelay = delay
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	return &rueidisClient{Client: c, script: rueidis.NewLuaScript(Source), value: s.Value}, nil
}

type rueidisClient struct {
	rueidis.Client
	script *rueidis.Lua
	value  string
}

func (c *rueidisClient) Caller(ctx context.Context) (Caller, error) {
	return &rueidisCaller{c, ctx}, nil
}

type rueidisCaller struct {
	c   *rueidisClient
	ctx context.Context
}

func (r *rueidisCaller) Get() error {
	text, err := r.c.Do(r.ctx, r.c.B().Get().Key(Key).Build()).ToString()
	return expect(len(text) == len(r.c.value), err)
}

func (r *rueidisCaller) Set() error {
	text, err := r.c.Do(r.ctx, r.c.B().Set().Key(Key).Value(r.c.value).Build()).ToString()
	return expect(text == "OK", err)
}

func (r *rueidisCaller) Eval() error {
	n, err := r.c.Do(r.ctx, r.c.B().Evalsha().Sha1(digest).Numkeys(1).Key(Key).Arg(Argument).Build()).ToInt64()
	return expect(n == int64(scriptResult), err)
}

func (r *rueidisCaller) Script() error {
	n, err := r.c.script.Exec(r.ctx, r.c.Client, []string{Key}, []string{Argument}).ToInt64()
	return expect(n == int64(scriptResult), err)
}

func (r *rueidisCaller) Batch() error {
	commands := make([]rueidis.Completed, 0, BatchSize)
	for range BatchSize {
		commands = append(commands, r.c.B().Get().Key(Key).Build())
	}
	for _, reply := range r.c.DoMulti(r.ctx, commands...) {
		text, err := reply.ToString()
		if err := expect(len(text) == len(r.c.value), err); err != nil {
			return err
		}
	}
	return nil
}
