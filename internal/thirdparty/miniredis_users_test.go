package thirdparty

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// The code of TESTING.md about miniredis.

func TestMiniredisInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := miniredis.NewMiniRedis() // not RunT, which opens a socket
		srv.ClockTTL(true)              // keys age as the clock goes; by default they do not age at all
		var gone atomic.Bool
		pool, err := conn.Open(t.Context(), conn.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			if gone.Load() { // Dial of a closed miniredis would start it again
				return nil, errors.New("the server is gone")
			}
			return srv.Dial()
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		defer pool.Close()
		locks, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()

		lease, err := locks.Reentrant("import").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		gone.Store(true)
		srv.Close()
		<-lease.Lost()
		if took := time.Since(start); took != 29698*time.Millisecond {
			t.Errorf("told of the loss after %v, want 29.698s", took)
		}
	})
}

func TestMiniredisInRealTime(t *testing.T) {
	srv := miniredis.RunT(t)
	pool, err := conn.Open(t.Context(), conn.Config{Addr: srv.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Reentrant("import").Lock(t.Context(), lock.For(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	srv.FastForward(11 * time.Second) // only keys age, neither waiters nor leases notice
	if err := lease.Err(); err != nil {
		t.Errorf("Err() = %v: the clock of this process has not moved", err)
	}
	if err := lease.Check(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Check() = %v, want ErrLost", err)
	}
}
