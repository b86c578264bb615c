package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// TestAbandonedReplyAndPush: a push with attributes arrives before a reply to skip, and is not skipped in its place.
func TestAbandonedReplyAndPush(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(5*time.Second))
		defer l.close()
		srv.Intercept(onName("GET", 1, fakeredis.Run().Before("|1\r\n+a\r\n+b\r\n>1\r\n+test\r\n").Late(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Do(ctx, "GET", "key")
		wantFailure(t, err, errSent, context.DeadlineExceeded)
		want(t, l, "next", "ECHO", "next")
		want(t, l, "last", "ECHO", "last")
	})
}

// allAtOnce is a connection to a server that answers so many commands together.
type allAtOnce struct {
	net.Conn // nil
	commands int
	replies  io.Reader
	onRead   func()
	asked    chan struct{} // closed after the last command
	closed   chan struct{}
}

func (c *allAtOnce) Write(b []byte) (int, error) {
	if c.commands -= bytes.Count(b, []byte("*")); c.commands == 0 {
		close(c.asked)
	}
	return len(b), nil
}

func (c *allAtOnce) Read(b []byte) (int, error) {
	<-c.asked
	c.onRead()
	n, err := c.replies.Read(b)
	if err != nil {
		<-c.closed
	}
	return n, err
}

func (c *allAtOnce) Close() error {
	close(c.closed)
	return nil
}

// TestLargeRepliesOneByOne: many large replies have arrived. A caller gets its reply before the reader takes memory for
// many more of them.
func TestLargeRepliesOneByOne(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, ahead = 64, 6
		reply := []byte("$262144\r\n" + string(make([]byte, 256<<10)) + "\r\n")
		replies := bytes.NewReader(bytes.Repeat(reply, callers))
		var done atomic.Int64
		most := int64(0)
		nc := &allAtOnce{commands: callers, replies: replies, asked: make(chan struct{}), closed: make(chan struct{})}
		nc.onRead = func() {
			most = max(most, (replies.Size()-int64(replies.Len()))/int64(len(reply))-done.Load())
		}
		l := openOver(nc, shared(limits(time.Minute)))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				v, err := l.Do(context.Background(), "GET", "key")
				if text, _ := v.Text(); err != nil || len(text) != 256<<10 {
					t.Errorf("GET: %d bytes, %v", len(text), err)
				}
				done.Add(1)
			})
		}
		wg.Wait()
		l.close()
		if !errors.Is(l.err, errClosed) || most > ahead {
			t.Errorf("the reader was %d replies ahead of the callers, want at most %d; the link ended with %v", most, ahead, l.err)
		}
	})
}
