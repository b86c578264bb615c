package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
)

func TestReadNodes(t *testing.T) {
	const text = "aa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-8000 [7-<-bb]\n" +
		"bb 10.0.0.2:6379@16379,two.example master - 0 1 2 connected 8001-16383\n" +
		"cc 10.0.0.3:6379@16379 slave bb 0 1 2 connected\n" +
		"dd 10.0.0.4:6379@16379 slave,fail bb 0 1 2 disconnected\n" +
		"ee :0@0 slave,noaddr bb 0 1 2 disconnected\n" +
		"ff 10.0.0.6:6379@16379 slave,fail? bb 0 1 2 connected\n" +
		"gg 10.0.0.7:6379@16379 master,fail - 0 1 3 disconnected\n" +
		"hh 10.0.0.8:6379@16379 master - 0 1 0 connected\n" +
		"\nnot a node\n"
	for id, want := range map[string]struct {
		addr                  string
		replicas              int
		known, serves, itself bool
	}{
		"aa": {itself: true}, // a node does not report about itself
		"bb": {"10.0.0.2:6379", 2, true, true, false},
		"cc": {}, "gg": {}, "ii": {},
		"hh": {"10.0.0.8:6379", 0, true, false, false}, // without slots
	} {
		s := conn.Succession{Master: id}
		known, serves, itself := cluster.ReadNodes(text, &s)
		if s.Addr != want.addr || s.Replicas != want.replicas || known != want.known || serves != want.serves || itself != want.itself {
			t.Errorf("%s: %+v, %v, %v, %v, want %+v", id, s, known, serves, itself, want)
		}
	}
}

// A master does not know yet that it is replaced: its own report counts only if the cluster has no other node. However often the master
// reports, it does not displace the report of another node.
func TestReportsOfTwoNodes(t *testing.T) {
	two := []string{"10.0.0.1:6379", "10.0.0.2:6379"}
	for _, c := range []struct {
		name    string
		masters []string
		from    []string
		want    bool
	}{
		{"of the master", two, []string{two[0]}, false},
		{"of the master, the only node", two[:1], []string{two[0]}, true},
		{"of another node", two, []string{two[1]}, true},
		{"of another node, then of the master twice", two, []string{two[1], two[0], two[0]}, true},
		{"of the master, then of another node twice", two, []string{two[0], two[1], two[1]}, true},
	} {
		if got := cluster.KnownAfter(c.masters, c.from...); got != c.want {
			t.Errorf("after a report %s: known = %v, want %v", c.name, got, c.want)
		}
	}
}

// A question that its caller gives up soon tells nothing of the nodes. A node that has not answered for longer is asked last,
// whatever the caller's limit: so the next question is for another node.
func TestSickAfterAQuestion(t *testing.T) {
	for limit, want := range map[time.Duration]int{100 * time.Millisecond: 0, 300 * time.Millisecond: 1} {
		for _, question := range []func(context.Context, *cluster.Cluster) error{
			func(ctx context.Context, c *cluster.Cluster) error {
				_, err := c.Succession(ctx, keyA, time.Now())
				return err
			},
			func(ctx context.Context, c *cluster.Cluster) error {
				_, err := c.SuccessionOf(ctx, "id", time.Now())
				return err
			},
		} {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				for _, node := range f.nodes {
					node.Mute(true)
				}
				if err := question(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want the end of the context", err)
				}
				got := 0
				for addr := range f.nodes {
					if cluster.Sick(c, addr) {
						got++
					}
				}
				if got != want {
					t.Errorf("%d nodes are asked last after a question of %v, want %d", got, limit, want)
				}
			})
		}
	}
}
