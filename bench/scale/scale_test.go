package scale_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/scale"
	"github.com/lockwire/lockwire/bench/servertest"
	"github.com/lockwire/lockwire/bench/system"
)

func TestScale(t *testing.T) {
	servertest.Run(t, func(redis *system.Redis) {
		env := measure.Env{Network: "tcp", Addr: redis.TCP, Length: measure.Length{For: time.Millisecond}}
		for name, work := range map[string]measure.Work{"leases": scale.Leases(200), "waiters": scale.Waiters(200)} {
			if err := redis.Empty(); err != nil { // of leases, which outlive their client
				t.Fatal(err)
			}
			r, err := work(env)
			if err != nil || r.Ops != 200 {
				t.Errorf("%s: %d of 200, %v", name, r.Ops, err)
			}
		}
	})
}
