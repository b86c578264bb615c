package runner_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/bench/catalog"
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/runner"
	"github.com/lockwire/lockwire/bench/servertest"
	"github.com/lockwire/lockwire/bench/system"
)

// TestContenders runs every contender of every case for a few operations. Peers are left out where there are many clients: one
// that loses a wake-up would never end.
func TestContenders(t *testing.T) {
	servertest.Run(t, func(redis *system.Redis) {
		servers := []*system.Redis{redis, another(t), another(t)}
		for _, c := range catalog.Cases() {
			if !short(c) || c.TLS && redis.TLS == "" {
				continue
			}
			for _, x := range c.Contenders {
				if !x.Etcd && !(strings.Contains(c.Name, "herd-") && x.Kind == catalog.Peer) {
					try(t, c, x, servers[:max(c.Servers, 1)])
				}
			}
		}
	})
}

func another(t *testing.T) *system.Redis {
	t.Helper()
	server, err := system.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

func try(t *testing.T, c catalog.Case, x catalog.Contender, servers []*system.Redis) {
	t.Helper()
	for _, server := range servers {
		if err := server.Empty(); err != nil {
			t.Fatal(err)
		}
	}
	numbers, err := runner.Try(c, x, servers, measure.Length{Ops: operations(c)})
	if err != nil {
		t.Errorf("%s, %s: %v", c.Name, x.Name, err)
		return
	}
	checkNumbers(t, c, x, numbers)
}

// short leaves out what differs from another case by nothing but how long it takes, and what has a test of its own.
func short(c catalog.Case) bool {
	many := c.Callers > 8 && c.Group != "subscriptions" && c.Name != "contended-1x10" && !strings.HasSuffix(c.Name, "herd-100")
	return !many && c.Group != "scale" && c.Group != "codec" && !strings.HasSuffix(c.Name, "-hold")
}

// operations is how many of each caller are few, and still more than one.
func operations(c catalog.Case) int {
	if c.Group == "subscriptions" {
		return 200
	}
	return 2
}

func checkNumbers(t *testing.T, c catalog.Case, x catalog.Contender, numbers map[string]float64) {
	t.Helper()
	for name, value := range numbers {
		if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			t.Errorf("%s, %s: %s = %v", c.Name, x.Name, name, value)
		}
	}
	first := c.Metrics[0].Name
	if _, ok := numbers[first]; !ok && first != catalog.HandoffP50 {
		t.Errorf("%s, %s: no %s", c.Name, x.Name, first)
	}
	if n := numbers[catalog.Overlaps]; n != 0 {
		t.Errorf("%s, %s: %v times two callers had the lock at once", c.Name, x.Name, n)
	}
}
