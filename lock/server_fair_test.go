package lock_test

import (
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// A release tells the head of the queue; if nobody listens for that one, the first for whom somebody does, who then sees to
// it that the others are passed over; and nobody behind.
func TestServerFairReleaseIsHeard(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := redistest.Open(t, s.Config())
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease := mustLockFair(t, c)
		for _, waiter := range []string{"dead:1", "dead:2", "alive:1", "alive:2"} {
			s.Do("RPUSH", jobQueue, waiter)
			s.Do("ZADD", "redisson_lock_timeout:{job}", 9e13, waiter)
		}
		channel := func(i int) string { return fmt.Sprint(jobChannel, ":alive:", i) }
		var streams []*conn.Stream
		for i := range 2 {
			stream, err := pool.Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if err := stream.Write(t.Context(), resp.Cmd("SUBSCRIBE", channel(i+1))); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Read(); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		mustUnlock(t, lease)
		for i, want := range []string{"0", "the end"} {
			s.Do("PUBLISH", channel(i+1), "the end")
			v, err := streams[i].Read()
			if got, _ := v.At(2).Text(); err != nil || got != want {
				t.Errorf("waiter %d hears %q, %v, want %q", i+1, got, err, want)
			}
		}
		s.Do("FLUSHALL")
	})
}
