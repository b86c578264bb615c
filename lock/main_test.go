package lock_test

import (
	"os"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(text))
	}
	redistest.Main(m)
}
