package clients

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/lockwire/lockwire/bench/floor"
)

// The requests of the jobs.
var (
	getRequest   = floor.Request("GET", Key)
	evalRequest  = floor.Request("EVALSHA", digest, "1", Key, Argument)
	batchRequest = bytes.Repeat(getRequest, BatchSize)
)

// Raw is a loop of write and read with prebuilt requests, each caller over a connection of its own.
func Raw(s Setup) (Client, error) { return &raw{Setup: s}, nil }

type raw struct {
	Setup
	conns []*floor.Conn
}

func (c *raw) Caller(context.Context) (Caller, error) {
	conn, err := floor.Dial(c.Network, c.Addr, c.TLS)
	if err != nil {
		return nil, err
	}
	c.conns = append(c.conns, conn)
	return &rawCaller{conn.Do, conn, len(c.Value), floor.Request("SET", Key, c.Value)}, nil
}

func (c *raw) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// rawCaller sends prebuilt requests by do; conn is for batches.
type rawCaller struct {
	do   func([]byte) (floor.Reply, error)
	conn *floor.Conn
	size int
	set  []byte
}

func (c *rawCaller) Get() error {
	r, err := c.do(getRequest)
	return expect(r.N == int64(c.size), err)
}

func (c *rawCaller) Set() error {
	r, err := c.do(c.set)
	return expect(r.Kind == '+', err)
}

func (c *rawCaller) Eval() error {
	r, err := c.do(evalRequest)
	return expect(r.N == int64(scriptResult), err)
}

func (c *rawCaller) Script() error { return c.Eval() }
func (c *rawCaller) Batch() error  { return c.conn.DoAll(batchRequest, BatchSize) }

// Mux is a minimal combining multiplexer on a single connection, Mux4 on four connections in turn.
func Mux(s Setup) (Client, error)  { return openMux(s, 1) }
func Mux4(s Setup) (Client, error) { return openMux(s, 4) }

func openMux(s Setup, n int) (Client, error) {
	m := &muxes{Setup: s}
	for range n {
		one, err := floor.DialMux(s.Network, s.Addr, s.TLS)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.list = append(m.list, one)
	}
	return m, nil
}

type muxes struct {
	Setup
	list []*floor.Mux
	next atomic.Int32
}

func (m *muxes) Caller(context.Context) (Caller, error) {
	one := m.list[int(m.next.Add(1))%len(m.list)]
	return &rawCaller{do: one.Caller().Do, size: len(m.Value), set: floor.Request("SET", Key, m.Value)}, nil
}

func (m *muxes) Close() {
	for _, one := range m.list {
		one.Close()
	}
}
