package pipeline_test

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// TestDrain: the Owner learns that a Link is drained after the last answer, or that the time for it is over.
func TestDrain(t *testing.T) {
	for _, test := range []struct {
		answer, most, ends time.Duration
		err                error
	}{
		{time.Second, 0, time.Second, errClosed},
		{time.Second, 2 * time.Second, time.Second, errClosed},
		{3 * time.Second, 2 * time.Second, 2 * time.Second, errDue},
	} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := open(t, srv, limits(5*time.Second))
			srv.Intercept(onName("GET", 1, fakeredis.Run().Late(test.answer)))
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := l.Do(context.Background(), "GET", "key"); (err == nil) != (test.err == errClosed) {
					t.Errorf("the outstanding GET = %v", err)
				}
			})
			synctest.Wait()
			if n := l.Outstanding(); n != 1 {
				t.Errorf("Outstanding() = %d, want 1", n)
			}
			l.Drain(test.most) // the Owner fails a drained link with errClosed, and a due one with errDue
			<-l.Done()
			between(t, "the link ended", time.Since(start), test.ends, test.ends)
			wg.Wait()
			l.wg.Wait()
			if l.err != test.err || !l.Failed() || l.Err() != test.err {
				t.Errorf("Lost got %v and Err is %v, want %v", l.err, l.Err(), test.err)
			}
		})
	}
}

// dueOwner notes when the Owner's Due is called.
type dueOwner struct {
	*link
	due []time.Duration
}

func (o *dueOwner) Due(l *pipeline.Link) { o.due = append(o.due, time.Since(l.Start)) }

// TestSetDue: Due is called once, at the time that was set last.
func TestSetDue(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		nc, err := srv.Dial(t.Context(), "tcp", "server:6379")
		if err != nil {
			t.Fatal(err)
		}
		o := &dueOwner{link: new(link)}
		l := pipeline.New(pipeline.NewSession(nc, nc, resp.Limits{}), limits(time.Second), o, &o.wg)
		l.SetDue(time.Hour)
		l.SetDue(90 * time.Second)
		time.Sleep(2 * time.Hour)
		l.SetDue(3 * time.Hour)
		l.SetDue(0)
		time.Sleep(2 * time.Hour)
		l.Fail(errClosed)
		o.wg.Wait()
		if len(o.due) != 1 || o.due[0] != 90*time.Second {
			t.Errorf("Due was called at %v, want once after 1m30s", o.due)
		}
	})
}

// TestLargestDue: the largest time leaves the other times of the timer alone. The test is in real time, because the sum of two times does not
// overflow within an instant.
func TestLargestDue(t *testing.T) {
	nc, server := net.Pipe()
	o := new(link)
	l := pipeline.New(pipeline.NewSession(nc, nc, resp.Limits{}), pipeline.Config{PingInterval: 50 * time.Millisecond}, o, &o.wg)
	l.SetDue(math.MaxInt64)
	asked := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 64))
		asked <- err
	}()
	select {
	case err := <-asked:
		if err != nil {
			t.Error("no PING:", err)
		}
	case <-time.After(redistest.Patience):
		t.Error("no PING")
	}
	l.Fail(errClosed)
	o.wg.Wait()
	server.Close()
}

// TestVerify: an error of Verify fails the Link, and the caller still gets its replies.
func TestVerify(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(time.Second)))
		defer l.close()
		bad := errors.New("bad replies")
		var seen int
		q := pipeline.Request{
			Commands: []resp.Command{resp.Cmd("ECHO", "a"), resp.Cmd("ECHO", "b")},
			Verify:   func(replies []resp.Value) error { seen = len(replies); return nil },
		}
		if _, _, err := l.DoBatch(t.Context(), q); err != nil || seen != 2 {
			t.Errorf("DoBatch = %v, and Verify got %d replies, want 2", err, seen)
		}
		q.Verify = func([]resp.Value) error { return bad }
		if values, _, err := l.DoBatch(t.Context(), q); err != nil || len(values) != 2 {
			t.Errorf("DoBatch = %v, %v, want two replies", values, err)
		}
		_, err := l.Do(t.Context(), "GET", "key")
		wantFailure(t, err, errNotSent, bad)
	})
}

// TestPost: the reply to a posted command goes to nobody.
func TestPost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(time.Second)))
		srv.ClearLog()
		for i := range 10 {
			l.Post(resp.Cmd("ECHO", "posted"))
			echo(t, t.Context(), l, i)
		}
		if n := srv.Count("ECHO"); n != 20 {
			t.Errorf("the server saw %d ECHO, want 20", n)
		}
		l.close()
		l.Post(resp.Cmd("ECHO", "late"))
		if n := l.Outstanding(); n != 0 {
			t.Errorf("a failed link has %d commands outstanding", n)
		}
	})
}

// TestNever: a command without limit outlasts the Timeout. The end of its ctx fails the Link.
func TestNever(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(time.Minute)))
		l := open(t, srv, limits(time.Second))
		defer l.close()
		q := pipeline.Request{Commands: []resp.Command{resp.Cmd("GET", "key")}, Blocks: true, Wait: pipeline.Never}
		if _, _, err := l.Link.Do(t.Context(), q, pipeline.Text{}); err != nil {
			t.Errorf("a GET without limit = %v", err)
		}
		srv.Mute(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, sent, err := l.Link.Do(ctx, q, pipeline.Text{})
		if !sent || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a GET without limit = %v, %v, want DeadlineExceeded, sent", sent, err)
		}
		between(t, "the caller left", time.Since(start), time.Minute, time.Minute)
		if !l.Failed() {
			t.Error("the link is used although the server may still be busy")
		}
	})
}

// TestWait: the Wait of a command extends the Timeout.
func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(time.Second))
		defer l.close()
		srv.Mute(true)
		start := time.Now()
		q := pipeline.Request{Commands: []resp.Command{resp.Cmd("WAIT", 1, 3000)}, Wait: 3 * time.Second}
		_, sent, err := l.Link.Do(t.Context(), q, pipeline.Text{})
		if !sent || err == nil {
			t.Errorf("WAIT = %v, %v, want an error, sent", sent, err)
		}
		between(t, "the link failed", time.Since(start), 4*time.Second, 4200*time.Millisecond)
	})
}

// TestOnSilent: the callback is called while the server owes an answer, and not before.
func TestOnSilent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var mu sync.Mutex // guards the following
		var at []time.Duration
		start := time.Now()
		l := open(t, srv, pipeline.Config{Timeout: 3 * time.Second, OnSilent: func(addr string) {
			if addr != "server:6379" {
				t.Errorf("OnSilent(%q)", addr)
			}
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start))
		}})
		time.Sleep(time.Hour)
		srv.Mute(true)
		mu.Lock()
		start = time.Now()
		mu.Unlock()
		_, err := l.Do(t.Context(), "GET", "key")
		if err == nil {
			t.Error("a mute server has answered")
		}
		l.close()
		if len(at) < 3 || at[0] < time.Second || at[0] > 1500*time.Millisecond {
			t.Errorf("OnSilent was called after %v, want after a second, and about twice a second", at)
		}
	})
}

// TestNotSilentWhileBlocking: without PINGs a server that keeps back an answer on purpose owes nothing.
func TestNotSilentWhileBlocking(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(time.Minute)))
		var calls atomic.Int32
		l := open(t, srv, pipeline.Config{Timeout: 3 * time.Second, OnSilent: func(string) { calls.Add(1) }})
		q := pipeline.Request{Commands: []resp.Command{resp.Cmd("GET", "key")}, Blocks: true, Wait: pipeline.Never}
		if _, _, err := l.Link.Do(t.Context(), q, pipeline.Text{}); err != nil {
			t.Errorf("a GET without limit = %v", err)
		}
		l.close()
		if n := calls.Load(); n != 0 {
			t.Errorf("OnSilent was called %d times", n)
		}
	})
}

// TestSilentBesidePings: a server is silent after a second, but for a blocking command only when the answer to a PING is missing.
func TestSilentBesidePings(t *testing.T) {
	for blocks, first := range map[bool]time.Duration{false: time.Second, true: 9 * time.Second} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			srv.Mute(true)
			start, calls := time.Now(), make(chan time.Duration, 100)
			l := open(t, srv, pipeline.Config{Timeout: 30 * time.Second, PingInterval: 10 * time.Second, OnSilent: func(string) {
				calls <- time.Since(start)
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			q := pipeline.Request{Commands: []resp.Command{resp.Cmd("GET", "key")}, Blocks: blocks}
			if blocks {
				q.Wait = pipeline.Never
			}
			if _, _, err := l.Link.Do(ctx, q, pipeline.Text{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("GET = %v, want the end of the context", err)
			}
			l.close()
			between(t, "OnSilent was called", <-calls, first, first+1500*time.Millisecond)
		})
	}
}

// A blocking command that its caller gives up before any byte is written holds up nobody: the link goes on.
func TestUnsentBlockingCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, peer := net.Pipe()
		l := openOver(nc, pipeline.Config{})
		defer l.close()
		var first sync.WaitGroup
		first.Go(func() { want(t, l, "PONG", "PING") })
		synctest.Wait() // the write of PING blocks, because the peer does not read
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := pipeline.Request{Commands: []resp.Command{resp.Cmd("BLPOP", "key", 0)}, Blocks: true, Wait: pipeline.Never}
		_, sent, err := l.Link.Do(ctx, q, pipeline.Text{})
		wantFailure(t, failure(sent, err), errNotSent, context.DeadlineExceeded)
		if err := l.Err(); err != nil {
			t.Errorf("the link has failed: %v", err)
		}
		if _, err := peer.Read(make([]byte, 64)); err != nil {
			t.Error(err)
		}
		if _, err := peer.Write([]byte("+PONG\r\n")); err != nil {
			t.Error(err)
		}
		first.Wait()
	})
}
