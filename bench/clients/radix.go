package clients

import (
	"github.com/mediocregopher/radix/v4"
)

// Radix is radix v4 with nothing set but the network.
func Radix(network, addr string, _ int) (Client, error) {
	c, err := radix.PoolConfig{}.New(background, network, addr)
	if err != nil {
		return nil, err
	}
	return radixClient{Client: c, script: radix.NewEvalScript(Source)}, nil
}

type radixClient struct {
	radix.Client
	script radix.EvalScript
}

func (c radixClient) Caller() (Caller, error) { return radixCaller{c}, nil }
func (c radixClient) Close()                  { c.Client.Close() }

type radixCaller struct{ c radixClient }

func (r radixCaller) Get() error {
	var text string
	err := r.c.Do(background, radix.Cmd(&text, "GET", Key))
	return expect(len(text) == ValueSize, err)
}

func (r radixCaller) Set() error {
	return r.c.Do(background, radix.Cmd(nil, "SET", Key, Value))
}

func (r radixCaller) Eval() error {
	var n int
	err := r.c.Do(background, radix.Cmd(&n, "EVALSHA", digest, "1", Key, Argument))
	return expect(n == scriptResult, err)
}

func (r radixCaller) Script() error {
	var n int
	err := r.c.Do(background, r.c.script.Cmd(&n, []string{Key}, Argument))
	return expect(n == scriptResult, err)
}

func (r radixCaller) Batch() error {
	p := radix.NewPipeline()
	texts := make([]string, BatchSize)
	for i := range texts {
		p.Append(radix.Cmd(&texts[i], "GET", Key))
	}
	if err := r.c.Do(background, p); err != nil {
		return err
	}
	for _, text := range texts {
		if err := expect(len(text) == ValueSize, nil); err != nil {
			return err
		}
	}
	return nil
}
