package clients

import (
	"context"
	"crypto/tls"

	"github.com/mediocregopher/radix/v4"
)

// Radix is radix v4 with nothing set but the network.
func Radix(s Setup) (Client, error) {
	var dialer radix.Dialer
	if s.TLS != nil {
		dialer.NetDialer = &tls.Dialer{Config: s.TLS}
	}
	c, err := radix.PoolConfig{Dialer: dialer}.New(background, s.Network, s.Addr)
	if err != nil {
		return nil, err
	}
	return radixClient{Client: c, script: radix.NewEvalScript(Source), value: s.Value}, nil
}

type radixClient struct {
	radix.Client
	script radix.EvalScript
	value  string
}

func (c radixClient) Caller(ctx context.Context) (Caller, error) { return &radixCaller{c, ctx}, nil }
func (c radixClient) Close()                                     { c.Client.Close() }

type radixCaller struct {
	c   radixClient
	ctx context.Context
}

func (r *radixCaller) Get() error {
	var text string
	err := r.c.Do(r.ctx, radix.Cmd(&text, "GET", Key))
	return expect(len(text) == len(r.c.value), err)
}

func (r *radixCaller) Set() error {
	return r.c.Do(r.ctx, radix.Cmd(nil, "SET", Key, r.c.value))
}

func (r *radixCaller) Eval() error {
	var n int
	err := r.c.Do(r.ctx, radix.Cmd(&n, "EVALSHA", digest, "1", Key, Argument))
	return expect(n == scriptResult, err)
}

func (r *radixCaller) Script() error {
	var n int
	err := r.c.Do(r.ctx, r.c.script.Cmd(&n, []string{Key}, Argument))
	return expect(n == scriptResult, err)
}

func (r *radixCaller) Batch() error {
	p := radix.NewPipeline()
	texts := make([]string, BatchSize)
	for i := range texts {
		p.Append(radix.Cmd(&texts[i], "GET", Key))
	}
	if err := r.c.Do(r.ctx, p); err != nil {
		return err
	}
	for _, text := range texts {
		if err := expect(len(text) == len(r.c.value), nil); err != nil {
			return err
		}
	}
	return nil
}
