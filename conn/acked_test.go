package conn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// increment increments key and waits for replicas.
func increment(ctx context.Context, p *conn.Pool, key string) error {
	_, err := p.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", key), resp.Cmd("WAIT", 0, 100)})
	return err
}

// A caller whose turn comes too late for an answer passes the turn on to a waiting caller.
func TestAckedTooLate(t *testing.T) {
	for name, others := range map[string]bool{"alone": false, "others wait": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 1})
				defer p.Close()
				srv.Latency(5 * time.Millisecond)
				bg := context.Background()
				for range 40 {
					if err := increment(bg, p, "before"); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { _ = increment(bg, p, "first") })
				time.Sleep(time.Millisecond)
				wg.Go(func() {
					leaves := start.Add(14 * time.Millisecond)
					ctx, cancel := context.WithDeadline(context.WithValue(bg, conn.Leaves, leaves), leaves)
					defer cancel()
					err := increment(ctx, p, "late")
					if errors.Is(err, conn.ErrNotSent) != others || !errors.Is(err, context.DeadlineExceeded) || !time.Now().Equal(leaves) {
						t.Errorf("the late batch ended with %v after %v", err, time.Since(start))
					}
				})
				time.Sleep(time.Millisecond)
				if others {
					wg.Go(func() {
						if err := increment(bg, p, "next"); err != nil || time.Since(start) > 20*time.Millisecond {
							t.Errorf("the next batch ended with %v after %v", err, time.Since(start))
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				if n := srv.Do("EXISTS", "late"); n != int64(map[bool]int{false: 1}[others]) {
					t.Errorf("the batch was executed %v times", n)
				}
			})
		})
	}
}

// brittle is a connection whose next Write fails, once broken is set.
type brittle struct {
	net.Conn
	broken *atomic.Bool
}

func (b brittle) Write(p []byte) (int, error) {
	if b.broken.Swap(false) {
		return 0, io.ErrClosedPipe
	}
	return b.Conn.Write(p)
}

// A batch of which no byte was written, because its connection was idle while it broke, is sent again.
func TestAckedOverABrokenConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var broken atomic.Bool
		p := openPool(t, conn.Config{MaxConns: 1, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := srv.Dial(ctx, network, addr)
			return brittle{nc, &broken}, err
		}})
		defer p.Close()
		for want := range 2 {
			if err := increment(t.Context(), p, "key"); err != nil {
				t.Fatalf("batch %d: %v", want+1, err)
			}
			broken.Store(want == 0)
		}
		if got := srv.Do("GET", "key"); got != "2" || broken.Load() {
			t.Errorf("the key is %v, want 2, and the connection broken", got)
		}
	})
}

// After an outage, callers with little time get answers again.
func TestAckedAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, MaxConns: 2})
		defer p.Close()
		srv.Latency(time.Millisecond)
		call := func(patience time.Duration) error {
			leaves := time.Now().Add(patience)
			ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), conn.Leaves, leaves), leaves)
			defer cancel()
			return increment(ctx, p, "key")
		}
		srv.Stall(true)
		if err := call(4 * time.Second); err == nil {
			t.Fatal("the server answers")
		}
		srv.Stall(false)
		time.Sleep(time.Second)
		var mu sync.Mutex
		answered := 0
		for range 20 {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if call(20*time.Millisecond) == nil {
						mu.Lock()
						defer mu.Unlock()
						answered++
					}
				})
			}
			wg.Wait()
		}
		if answered < 100 {
			t.Errorf("%d of 1000 had an answer, want many", answered)
		}
	})
}
