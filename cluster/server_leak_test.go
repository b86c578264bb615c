package cluster_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
)

// files returns the number of open files of the process, or false on a system without the number.
func files(t *testing.T) (int, bool) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0, false
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list), true
}

// After Close no goroutine and no connection is left.
func TestServerLeaks(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		masters := rc.Masters()
		tags := append(tagsOf(rc, masters[0], 2), tagsOf(rc, masters[1], 2)...)
		before, countable := files(t)
		for range 3 {
			c, err := cluster.Open(within(t), cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
			if err != nil {
				t.Fatal(err)
			}
			s := pubsub.New(c, pubsub.Config{})
			for _, tag := range tags {
				if _, err := s.Listen("{" + tag + "}c"); err != nil {
					t.Fatal(err)
				}
			}
			l := startLoad(t, c, tags, 3, nil)
			rc.Move(cluster.Slot(tags[0]), masters[1])
			rc.Move(cluster.Slot(tags[0]), masters[0])
			l.end(false)
			for _, m := range masters {
				m.Do("FLUSHALL")
			}
			s.Close()
			c.Close()
		}
		redistest.NoGoroutines(t)
		if after, _ := files(t); countable && after > before {
			t.Errorf("%d files are open, before it were %d", after, before)
		}
	})
}
