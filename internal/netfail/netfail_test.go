package netfail_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

func TestJitter(t *testing.T) {
	for range 100 {
		if d := netfail.Jitter(10 * time.Second); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("Jitter(10s) = %v, want 9 to 11 s", d)
		}
		if d := netfail.Jitter(math.MaxInt64); time.Now().Add(d).Before(time.Now().Add(100 * 365 * 24 * time.Hour)) {
			t.Errorf("Jitter of the longest time = %v", d)
		}
		if d := netfail.Jitter(math.MinInt64); d > math.MinInt64/4 {
			t.Errorf("Jitter of the most negative time = %v", d)
		}
	}
}

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	for n, most := range map[int]time.Duration{
		0: 8 * ms, 1: 16 * ms, 5: 256 * ms, 6: 512 * ms, 7: 512 * ms, 31: 512 * ms, 1 << 30: 512 * ms,
	} {
		if got := netfail.Doubled(n, 8*ms, 512*ms); got != most {
			t.Errorf("Doubled(%d) = %v, want %v", n, got, most)
		}
		if got := netfail.Backoff(n, 8*ms, 512*ms); got < most/2 || got > most {
			t.Errorf("Backoff(%d) = %v, want from a half of %v to the whole", n, got, most)
		}
	}
	for n := range 70 {
		if got := netfail.Backoff(n, 1<<62, 1<<63-1); got <= 0 {
			t.Errorf("Backoff(%d) of a huge pause = %v", n, got)
		}
	}
}

func TestDenied(t *testing.T) {
	for text, want := range map[string]bool{
		"NOAUTH HELLO must be called with the client already authenticated": true,
		"WRONGPASS invalid username-password pair or user is disabled.":     true,
		"NOPERM User al has no permissions to run the 'hello' command":      true,
		"DENIED Redis is running in protected mode":                         true,
		"ERR Client sent AUTH, but no password is set":                      true,
		"ERR invalid password":               true,
		"ERR invalid username-password pair": true,
		"ERR AUTH <password> called without any password configured for the default user":        true,
		"ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `invalid password`": false,
		"ERR unsupported command": false,
		"NOPROTO x":               false,
		"":                        false,
	} {
		if got := netfail.Denied(resp.Error(text)); got != want {
			t.Errorf("Denied(%q) = %v", text, got)
		}
	}
}

// A pause ends with its time, with the channel, or with its ctx.
func TestSleepUnless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stop, stopped := make(chan struct{}), errors.New("stopped")
		time.AfterFunc(time.Minute, func() { close(stop) })
		time.AfterFunc(2*time.Minute, cancel)
		for _, tt := range []struct {
			d, took time.Duration
			stop    chan struct{}
			want    error
		}{
			{30 * time.Second, 30 * time.Second, stop, nil},
			{time.Hour, 30 * time.Second, stop, stopped},
			{0, 0, stop, stopped},
			{0, 0, nil, nil},
			{time.Hour, time.Minute, nil, context.Canceled},
			{0, 0, nil, context.Canceled},
		} {
			begin := time.Now()
			if err := netfail.SleepUnless(ctx, tt.d, tt.stop, stopped); !errors.Is(err, tt.want) || time.Since(begin) != tt.took {
				t.Errorf("SleepUnless(%v) = %v after %v, want %v after %v", tt.d, err, time.Since(begin), tt.want, tt.took)
			}
		}
	})
}

// A signal that nobody has received yet is one signal, however often it is sent.
func TestSignal(t *testing.T) {
	to := make(chan struct{}, 1)
	netfail.Signal(to)
	netfail.Signal(to)
	if n := len(to); n != 1 {
		t.Errorf("%d signals, want 1", n)
	}
}

// A redirection is a reply, also as the cause of another error.
func TestRedirects(t *testing.T) {
	for err, want := range map[error]bool{
		resp.Error("MOVED 3999 127.0.0.1:6381"):                       true,
		fmt.Errorf("subscribe: %w", resp.Error("ASK 3999 host:6381")): true,
		resp.Error("TRYAGAIN Multiple keys request"):                  false,
		resp.Error("ERR MOVED"):                                       false,
		errors.New("MOVED 3999 127.0.0.1:6381"):                       false,
		nil:                                                           false,
	} {
		if got := netfail.Redirects(err); got != want {
			t.Errorf("Redirects(%v) = %v", err, got)
		}
	}
}

// A context within another ends with either, and with the cause.
func TestWithin(t *testing.T) {
	over := errors.New("over")
	outer, end := context.WithCancelCause(t.Context())
	ctx, release := netfail.Within(t.Context(), outer)
	defer release()
	released, release := netfail.Within(t.Context(), outer)
	release()
	if ctx.Err() != nil || released.Err() == nil {
		t.Errorf("before the end: %v; after release: %v", ctx.Err(), released.Err())
	}
	end(over)
	<-ctx.Done()
	if got := context.Cause(ctx); got != over {
		t.Errorf("the cause is %v, want %v", got, over)
	}
}
