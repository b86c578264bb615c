package conn_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestSlowPushes: replies do not wait for a blocked callback, and the oldest pushes are dropped.
func TestSlowPushes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		const n = 3000
		var got []int64
		release := make(chan struct{})
		p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(v resp.Value) {
			i, _ := v.At(1).Int()
			got = append(got, i)
			<-release
		}})
		for i := range n {
			srv.Push(1, fmt.Sprintf(">2\r\n+test\r\n:%d\r\n", i))
			synctest.Wait()
		}
		want(t, p, "PONG", "PING")
		close(release)
		time.Sleep(time.Second)
		lost := p.Stats().PushesLost
		p.Close()
		if lost == 0 || len(got)+int(lost) != n || got[len(got)-1] != n-1 {
			t.Errorf("%d pushes delivered, %d lost, of %d", len(got), lost, n)
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Errorf("push %d delivered after %d", got[i], got[i-1])
			}
		}
	})
}

// TestLargePushes: the pushes that wait for a blocked callback take 16 MiB at most, or are a single one.
func TestLargePushes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		delivered := 0
		release := make(chan struct{})
		p := openPool(t, conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) {
			delivered++
			<-release
		}})
		defer p.Close()
		push := func(mib int) {
			text := strings.Repeat("x", mib<<20)
			srv.Push(1, fmt.Sprintf(">2\r\n+test\r\n*1\r\n$%d\r\n%s\r\n", len(text), text))
			synctest.Wait()
		}
		for i, tt := range []struct{ mib, lost int }{{1, 0}, {7, 0}, {7, 0}, {1, 0}, {1, 1}, {17, 4}, {1, 5}, {14, 5}} {
			push(tt.mib) // the callback has the first
			if lost := p.Stats().PushesLost; lost != uint64(tt.lost) {
				t.Errorf("%d pushes lost after push %d, want %d", lost, i, tt.lost)
			}
		}
		close(release)
		synctest.Wait()
		if delivered != 3 {
			t.Errorf("%d pushes delivered, want the first and the last two", delivered)
		}
	})
}

// TestPushesOnExclusive: pushes on a lent connection are dropped, pushes on a Conn from Dial are delivered.
func TestPushesOnExclusive(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		pushes := 0
		cfg := conn.Config{Dial: srv.Dial, OnPush: func(resp.Value) { pushes++ }}
		p := openPool(t, cfg)
		defer p.Close()
		hold(t, p, 0)
		srv.Push(2, ">1\r\n+lent\r\n")
		synctest.Wait()
		if pushes != 0 {
			t.Error("a push on a lent connection was delivered")
		}
		c := dialConn(t, cfg)
		srv.Push(3, ">1\r\n+own\r\n")
		synctest.Wait()
		c.Close()
		if pushes != 1 {
			t.Errorf("%d pushes delivered, want 1", pushes)
		}
	})
}
