package lock_test

import (
	"flag"
	"os"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(text))
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // those that are parallel wait for the most part
		panic(err)
	}
	redistest.Main(m)
}
