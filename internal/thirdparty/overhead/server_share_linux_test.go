package overhead

import (
	"context"
	"math/rand/v2"
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

// turn is the number of pairs that a way runs one after the other: enough that an observer is as warm as in a program that observes
// all its pairs, and few enough that other programs disturb all ways alike.
const turn = 8

// BenchmarkServerShare reports the share of both observers, with a span in a hundred, in the time of a pair of Lock and Unlock,
// at several distances from the server, and the share of callbacks that do nothing. Pairs with and without observers take turns;
// the medians are compared. An observer may do the work of many pairs at once, which the median does not show: the means, without
// the slowest two in a hundred, are compared too, and of all pairs the processor time of the program.
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
			bare := &way{job: observer{}.client(b, cfg).Reentrant("job:1")}
			idle := &way{job: idle().client(b, cfg).Reentrant("job:2")}
			both := &way{job: byOTel(b, 0.01, true).and(byPrometheus()).client(b, cfg).Reentrant("job:3")}
			ways := []*way{bare, idle, both}
			for b.Loop() {
				rand.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
				for _, w := range ways {
					w.run(b)
				}
			}
			micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(micros(bare.median()), "µs/pair")
			for name, w := range map[string]*way{"callbacks": idle, "both": both} {
				b.ReportMetric(micros(w.median()-bare.median()), "µs-"+name)
				b.ReportMetric(100*float64(w.median()-bare.median())/float64(bare.median()), "%-"+name)
				b.ReportMetric(100*float64(w.mean()-bare.mean())/float64(bare.mean()), "%-mean-"+name)
			}
			b.ReportMetric(micros(both.worked-bare.worked)/float64(len(bare.took)), "µs-cpu-both")
		})
	}
}

// way is a way to observe pairs, with the pairs observed.
type way struct {
	job    *lock.Reentrant
	took   []time.Duration
	worked time.Duration // processor time
}

// run runs a turn of pairs.
func (w *way) run(b *testing.B) {
	used := processorTime(b)
	start, n := time.Now(), 0
	pairs(b, w.job, func() bool {
		if now := time.Now(); n > 0 {
			w.took, start = append(w.took, now.Sub(start)), now
		}
		n++
		return n <= turn
	})
	w.worked += processorTime(b) - used
}

func (w *way) median() time.Duration {
	slices.Sort(w.took)
	return w.took[len(w.took)/2]
}

// mean returns the mean without the slowest two in a hundred, which other programs have disturbed.
func (w *way) mean() (sum time.Duration) {
	slices.Sort(w.took)
	most := w.took[:(len(w.took)*98+99)/100]
	for _, d := range most {
		sum += d
	}
	return sum / time.Duration(len(most))
}

// processorTime returns the processor time that this program has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
