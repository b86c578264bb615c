package overhead

import (
	"context"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// far is a connection whose replies arrive later by a time.
type far struct {
	net.Conn
	later time.Duration
}

func (c far) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	wait := syscall.NsecToTimespec(c.later.Nanoseconds()) // time.Sleep is exact to a millisecond only
	_ = syscall.Nanosleep(&wait, nil)
	return n, err
}

// BenchmarkServerShare reports the share of both observers, with a span in a hundred, in the time of a pair of Lock and Unlock,
// at several distances from the server. Pairs with and without observers take turns; the medians are compared. The processor time
// of the program for a pair is compared too, as a mean: other programs disturb it less.
func BenchmarkServerShare(b *testing.B) {
	for _, later := range []time.Duration{0, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond} {
		b.Run(later.String(), func(b *testing.B) {
			cfg := redistest.Start(b, redistest.Options{}).Config()
			if later > 0 {
				dialer := net.Dialer{}
				cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					nc, err := dialer.DialContext(ctx, network, addr)
					return far{nc, later}, err
				}
			}
			ways := []*lock.Reentrant{
				observer{}.client(b, cfg).Reentrant("bare"),
				byOTel(b, 0.01, true).and(byPrometheus()).client(b, cfg).Reentrant("seen"),
			}
			took, worked := make([][]time.Duration, len(ways)), make([]time.Duration, len(ways))
			for turn := 0; b.Loop(); turn++ {
				for n := range ways {
					i := (n + turn) % len(ways)
					start, used := time.Now(), processorTime(b)
					once := true
					pairs(b, ways[i], func() bool { defer func() { once = false }(); return once })
					took[i] = append(took[i], time.Since(start))
					worked[i] += processorTime(b) - used
				}
			}
			bare, seen := median(took[0]), median(took[1])
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(bare.Nanoseconds())/1000, "µs/pair")
			b.ReportMetric(float64((seen-bare).Nanoseconds())/1000, "µs-more")
			b.ReportMetric(100*float64(seen-bare)/float64(bare), "%-more")
			more := (worked[1] - worked[0]) / time.Duration(len(took[0]))
			b.ReportMetric(float64(more.Nanoseconds())/1000, "µs-cpu-more")
			b.ReportMetric(100*float64(more)/float64(bare), "%-cpu-more")
		})
	}
}

// processorTime returns the processor time that this program has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
