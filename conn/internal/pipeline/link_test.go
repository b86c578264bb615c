package pipeline

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// slowOwner blocks the reader of its link at each push.
type slowOwner struct {
	reached, release chan struct{}
	err              error
}

func (o *slowOwner) Push(*Link, resp.Value) {
	o.reached <- struct{}{}
	<-o.release
}
func (o *slowOwner) Due(*Link)                      {}
func (o *slowOwner) Drained(*Link)                  {}
func (o *slowOwner) Lost(_ *Link, _ int, err error) { o.err = err }
func newSlowOwner() *slowOwner                      { return &slowOwner{make(chan struct{}), make(chan struct{}), nil} }
func echoes(n int) (cmds []resp.Command, reply string) {
	for range n {
		cmds, reply = append(cmds, resp.Cmd("ECHO", "a")), reply+"+a\r\n"
	}
	return cmds, reply
}

// TestReceivedBeforeSent: an extra reply is received, but not yet parsed, when the next command is sent. The extra
// reply arrived in one read with the end of the handshake, or with the answer to a call or a batch. It must not
// become the answer to the next command.
func TestReceivedBeforeSent(t *testing.T) {
	for name, test := range map[string]struct {
		early  bool // the extra reply arrives with the handshake
		first  int  // commands sent before
		cmds   int  // commands sent after the extra reply
		verify bool // the replies are verified
	}{
		"handshake":        {early: true, cmds: 1},
		"handshake, batch": {early: true, cmds: 3},
		"call":             {first: 1, cmds: 1},
		"call, batch":      {first: 1, cmds: 3},
		"batch":            {first: 3, cmds: 1},
		"call, verified":   {first: 1, cmds: 3, verify: true},
		"batch, verified":  {first: 3, cmds: 3, verify: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer server.Close()
				s := NewSession(client, client, resp.Limits{})
				const stray = ">1\r\n+push\r\n+stray\r\n"
				if test.early {
					go server.Write([]byte("+OK\r\n" + stray))
					if _, err := s.Reader.Read(); err != nil {
						t.Fatal(err)
					}
				}
				owner := newSlowOwner()
				var wg sync.WaitGroup
				l := New(s, Config{Timeout: 5 * time.Second, Shared: true}, owner, &wg)
				if first, reply := echoes(test.first); len(first) > 0 {
					go func() {
						bufio.NewReader(server).Peek(1)
						server.Write([]byte(reply + stray))
					}()
					if _, _, err := l.DoBatch(t.Context(), Request{Commands: first}); err != nil {
						t.Fatal(err)
					}
				}
				<-owner.reached
				go func() {
					b := make([]byte, 1<<10)
					server.Read(b) // the command sent now
					owner.release <- struct{}{}
				}()
				later, _ := echoes(test.cmds)
				q := Request{Commands: later}
				if test.verify {
					q.Verify = func([]resp.Value) error { return nil }
				}
				values, sent, err := l.DoBatch(context.Background(), q)
				if len(values) > 0 || !sent || !errors.Is(err, errUnasked) {
					t.Errorf("DoBatch = %v, %v, %v; want no reply, sent, and an error that says why", values, sent, err)
				}
				wg.Wait()
				if !errors.Is(owner.err, errUnasked) {
					t.Errorf("the link ended with %v, want %v", owner.err, errUnasked)
				}
			})
		})
	}
}
