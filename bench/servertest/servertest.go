// Package servertest starts servers for the tests of the benchmarks.
package servertest

import (
	"errors"
	"os"
	"testing"

	"github.com/lockwire/lockwire/bench/system"
)

// Run calls fn with a server of its own. Where none is installed it does not, and under CI=true the test has failed then.
func Run(t *testing.T, fn func(*system.Redis)) {
	t.Helper()
	redis, err := system.StartRedis()
	if errors.Is(err, system.ErrNoRedis) && os.Getenv("CI") != "true" {
		t.Log("not tested: ", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	fn(redis)
}
