package clients

import (
	"bytes"
	"sync/atomic"

	"github.com/lockwire/lockwire/bench/floor"
)

// The requests of the jobs.
var (
	getRequest   = floor.Request("GET", Key)
	setRequest   = floor.Request("SET", Key, Value)
	evalRequest  = floor.Request("EVALSHA", digest, "1", Key, Argument)
	batchRequest = bytes.Repeat(getRequest, BatchSize)
)

// Raw is a loop of write and read with prebuilt requests, each caller over a connection of its own.
func Raw(network, addr string, _ int) (Client, error) { return &raw{network: network, addr: addr}, nil }

type raw struct {
	network, addr string
	conns         []*floor.Conn
}

func (c *raw) Caller() (Caller, error) {
	conn, err := floor.Dial(c.network, c.addr)
	if err != nil {
		return nil, err
	}
	c.conns = append(c.conns, conn)
	return rawCaller{conn.Do, conn}, nil
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
}

func (c rawCaller) Get() error {
	r, err := c.do(getRequest)
	return expect(r.N == ValueSize, err)
}

func (c rawCaller) Set() error {
	r, err := c.do(setRequest)
	return expect(r.Kind == '+', err)
}

func (c rawCaller) Eval() error {
	r, err := c.do(evalRequest)
	return expect(r.N == int64(scriptResult), err)
}

func (c rawCaller) Script() error { return c.Eval() }
func (c rawCaller) Batch() error  { return c.conn.DoAll(batchRequest, BatchSize) }

// Mux is a minimal combining multiplexer on one connection, Mux4 on four of them taken in turn.
func Mux(network, addr string, _ int) (Client, error)  { return openMux(network, addr, 1) }
func Mux4(network, addr string, _ int) (Client, error) { return openMux(network, addr, 4) }

func openMux(network, addr string, n int) (Client, error) {
	m := new(muxes)
	for range n {
		one, err := floor.DialMux(network, addr)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.list = append(m.list, one)
	}
	return m, nil
}

type muxes struct {
	list []*floor.Mux
	next atomic.Int32
}

func (m *muxes) Caller() (Caller, error) {
	one := m.list[int(m.next.Add(1))%len(m.list)]
	return rawCaller{do: one.Caller().Do}, nil
}

func (m *muxes) Close() {
	for _, one := range m.list {
		one.Close()
	}
}
