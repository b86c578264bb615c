package lock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

func benchClient(b *testing.B) *lock.Client {
	s := redistest.Start(b, redistest.Options{})
	pool, err := conn.Open(b.Context(), s.Config())
	if err != nil {
		b.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		pool.Close()
	})
	return c
}

// BenchmarkServerOwnNames is Lock and Unlock by callers that do not contend.
func BenchmarkServerOwnNames(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := benchClient(b)
			var names atomic.Int64
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				job := c.Reentrant(fmt.Sprint("job", names.Add(1)))
				for pb.Next() {
					lockAndUnlock(b, job)
				}
			})
		})
	}
}

// BenchmarkServerContended is Lock and Unlock by callers of one process that all want the same lock.
func BenchmarkServerContended(b *testing.B) {
	for _, callers := range []int{10, 100} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := benchClient(b)
			job := c.Reentrant("job")
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					lockAndUnlock(b, job)
				}
			})
		})
	}
}
