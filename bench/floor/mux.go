package floor

import (
	"crypto/tls"
	"runtime"
	"sync"
)

// Mux is a connection shared by all callers: a caller who finds nobody writing writes for all.
type Mux struct {
	conn *Conn

	mu      sync.Mutex // guards the following
	pending []byte
	spare   []byte
	writing bool
	queue   []*call // sent or pending, without a reply
	err     error

	reading sync.WaitGroup
}

type call struct {
	reply Reply
	err   error
	done  chan struct{}
}

// DialMux connects. Close ends its reader.
func DialMux(network, addr string, secure *tls.Config) (*Mux, error) {
	conn, err := Dial(network, addr, secure)
	if err != nil {
		return nil, err
	}
	m := &Mux{conn: conn}
	m.reading.Go(m.read)
	return m, nil
}

// Close closes the connection and waits for the reader.
func (m *Mux) Close() {
	m.conn.Close()
	m.reading.Wait()
}

// Caller is a goroutine's access to a Mux.
type Caller struct {
	mux  *Mux
	call call
}

// Caller returns access for a further goroutine.
func (m *Mux) Caller() *Caller {
	return &Caller{mux: m, call: call{done: make(chan struct{}, 1)}}
}

// Do sends a request and returns its reply.
func (c *Caller) Do(request []byte) (Reply, error) {
	m := c.mux
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return Reply{}, m.err
	}
	m.pending = append(m.pending, request...)
	m.queue = append(m.queue, &c.call)
	if m.writing {
		m.mu.Unlock()
	} else {
		m.writing = true
		m.mu.Unlock()
		runtime.Gosched()
		m.write()
	}
	<-c.call.done
	return c.call.reply, c.call.err
}

// write writes until nothing is pending.
func (m *Mux) write() {
	m.mu.Lock()
	for len(m.pending) > 0 {
		out := m.pending
		m.pending = m.spare[:0]
		m.mu.Unlock()
		m.conn.nc.Write(out) // a broken connection shows in read
		m.mu.Lock()
		m.spare = out
	}
	m.writing = false
	m.mu.Unlock()
}

// read hands out replies until the connection ends.
func (m *Mux) read() {
	var batch []*call
	for {
		reply, err := m.conn.Read()
		if err != nil && reply.Kind != '-' {
			m.fail(err, batch)
			return
		}
		if len(batch) == 0 {
			m.mu.Lock()
			batch, m.queue = m.queue, nil
			m.mu.Unlock()
		}
		c := batch[0]
		batch = batch[1:]
		c.reply, c.err = reply, err
		c.done <- struct{}{}
	}
}

func (m *Mux) fail(err error, batch []*call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	for _, c := range append(batch, m.queue...) {
		c.err = err
		c.done <- struct{}{}
	}
	m.queue = nil
}
