package pipeline_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// TestTimeout: a connection without answers fails in time, for commands sent at any moment between two ticks.
func TestTimeout(t *testing.T) {
	for idle := range 7 * 4 {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := open(t, srv, limits(time.Second))
			defer l.close()
			time.Sleep(time.Duration(idle) * 250 * time.Millisecond / 3)
			srv.Mute(true)
			start := time.Now()
			_, err := l.Do(t.Context(), "GET", "key")
			between(t, "the connection failed", time.Since(start), time.Second, 1200*time.Millisecond)
			wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
			<-l.Done()
		})
	}
}

// TestTimeoutCountsTheOldest: new commands keep coming, and the oldest command counts.
func TestTimeoutCountsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(time.Second))
		defer l.close()
		srv.Mute(true)
		start := time.Now()
		for l.Err() == nil {
			go l.Do(t.Context(), "GET", "key")
			time.Sleep(10 * time.Millisecond)
		}
		between(t, "the connection failed", time.Since(start), time.Second, 1200*time.Millisecond)
	})
}

// TestTimeoutSparesTheBusy: a connection answers slowly, but every command in time.
func TestTimeoutSparesTheBusy(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(time.Second))
		defer l.close()
		srv.Latency(400 * time.Millisecond)
		for range 20 {
			for range 5 {
				go l.Do(t.Context(), "GET", "key")
			}
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if err := l.Err(); err != nil {
			t.Errorf("Err = %v, want none", err)
		}
	})
}

// TestLaterDeadline: the deadline of a ctx extends the time of a command.
func TestLaterDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(8*time.Second)))
		l := open(t, srv, limits(time.Second))
		defer l.close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.Do(ctx, "GET", "key"); err != nil {
			t.Errorf("GET = %v, want the answer that came after 8s of 10", err)
		}
	})
}

// TestLaterDeadlineOfMany: an exclusive connection has commands with a deadline in an hour, and one without a
// deadline. The connection fails at the deadline, neither earlier nor never.
func TestLaterDeadlineOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(time.Second))
		defer l.close()
		srv.Mute(true)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 10 {
			go l.Do(ctx, "GET", "key")
			synctest.Wait()
		}
		_, err := l.Do(t.Context(), "GET", "key")
		between(t, "the connection failed", time.Since(start), time.Hour, time.Hour+200*time.Millisecond)
		wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
	})
}

// TestNoTimeout: with a negative Timeout a command waits without limit.
func TestNoTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Intercept(onName("GET", 1, fakeredis.Run().Late(24*time.Hour)))
		l := open(t, srv, limits(-1))
		defer l.close()
		want(t, l, "null", "GET", "key")
	})
}

// TestPing: an idle connection sends a PING, and fails without an answer.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, pipeline.Config{Timeout: 2 * time.Second, PingInterval: 10 * time.Second})
		defer l.close()
		time.Sleep(time.Minute + time.Second)
		if n := srv.Count("PING"); n < 5 || n > 6 {
			t.Errorf("%d PING in a minute, want one every 10s", n)
		}
		if err := l.Err(); err != nil {
			t.Fatalf("Err = %v, want none", err)
		}
		srv.Mute(true)
		start := time.Now()
		<-l.Done()
		between(t, "the mute server was noticed", time.Since(start), 2*time.Second, 12*time.Second+time.Second)
		if !errors.Is(l.Err(), os.ErrDeadlineExceeded) {
			t.Errorf("Err = %v, want a timeout", l.Err())
		}
	})
}

// TestNoPingWhenBusy: no PING while replies arrive.
func TestNoPingWhenBusy(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, pipeline.Config{PingInterval: 2 * time.Second})
		defer l.close()
		for range 100 {
			want(t, l, "null", "GET", "key")
			time.Sleep(time.Second)
		}
		if n := srv.Count("PING"); n != 0 {
			t.Errorf("%d PING on a busy connection, want none", n)
		}
	})
}

// TestPingIntoFullSocket: the PING itself blocks, in the timer's goroutine.
func TestPingIntoFullSocket(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Buffer(4)
		l := open(t, srv, limits(5*time.Second))
		srv.Stall(true)
		start := time.Now()
		<-l.Done()
		between(t, "the connection failed", time.Since(start), 9*time.Second, 11*time.Second)
		l.close()
		srv.Stall(false)
	})
}

// TestIdleCostsNothing: the timers of an idle connection without PING stand still. In a bubble, only the test's own
// sleep then advances the time.
func TestIdleCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, pipeline.Config{PingInterval: -1})
		defer l.close()
		want(t, l, "PONG", "PING")
		time.Sleep(1000 * time.Hour)
		want(t, l, "PONG", "PING")
		if n := srv.Count("PING"); n != 2 {
			t.Errorf("%d PING, want the test's own 2", n)
		}
	})
}
