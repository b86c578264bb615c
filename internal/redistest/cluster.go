package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
)

const (
	clusterMasters  = 3
	clusterReplicas = 3
	slotCount       = 16384

	nodeTimeoutOption = "cluster-node-timeout"

	// busOffset is the distance between a node's port for clients and its port for nodes.
	busOffset = 10000

	// nodeTimeout is the cluster-node-timeout. A node that a busy machine holds up for seconds must not be taken for dead.
	nodeTimeout = 6 * time.Second

	// takeoverTimeout is the cluster-node-timeout while a test waits for a replica to take over.
	takeoverTimeout = time.Second

	// manualFailover limits the time of the nodes for a requested failover.
	manualFailover = 5 * time.Second
)

// Cluster is a cluster of three masters, which share the slots evenly, and a replica of each master. It goes on serving when
// some slots are unserved. Many goroutines may call the methods at once, except for methods that add, remove or promote nodes.
// A method that cannot do its work fails the test, as with Server.
type Cluster struct {
	t        testing.TB
	opts     Options
	protocol int
	nodes    []*Server // masters first, as in the beginning
}

// StartCluster starts a cluster that is killed at the end of the test. It returns when all nodes serve all slots and know of
// each node, and all replicas follow their masters. The options are for each node; a cluster has no unix socket. Without a
// program to start, StartCluster does as Start does.
func StartCluster(t testing.TB, opts Options) *Cluster {
	t.Helper()
	opts.node = true
	if opts.Binary == (Binary{}) {
		opts.Binary = binaries(t)[0]
	}
	c := &Cluster{t: t, opts: opts}
	for range clusterMasters + clusterReplicas {
		c.nodes = append(c.nodes, Start(t, opts))
	}
	if err := c.form(); err != nil {
		t.Fatalf("redistest: cluster: %v", err)
	}
	return c
}

// RunClusters runs fn as a subtest for each of the programs and for RESP2 and RESP3, with a cluster for each program. The
// Config of the cluster asks for proto too.
func RunClusters(t *testing.T, opts Options, fn func(t *testing.T, c *Cluster, proto int)) {
	t.Helper()
	for _, bin := range binaries(t) {
		opts.Binary = bin
		t.Run(bin.String(), func(t *testing.T) {
			c := StartCluster(t, opts)
			for _, proto := range []int{2, 3} {
				t.Run(fmt.Sprintf("resp%d", proto), func(t *testing.T) {
					outer := c.t
					c.protocol, c.t = proto, t
					for _, s := range c.nodes {
						s.t = t
					}
					defer func() {
						c.t = outer
						for _, s := range c.nodes {
							s.t = outer
						}
					}()
					fn(t, c, proto)
				})
			}
		})
	}
}

// Binary is the program the nodes run.
func (c *Cluster) Binary() Binary { return c.opts.Binary }

// Nodes are the servers of the cluster: the masters of the beginning first, then their replicas in the same order, then added
// nodes.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs are the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Config connects to any node of the cluster as the user "default". It has no Addr.
func (c *Cluster) Config() conn.Config {
	cfg := c.nodes[0].Config()
	cfg.Addr, cfg.Protocol = "", c.protocol
	return cfg
}

// Node returns the server at an address, or nil.
func (c *Cluster) Node(addr string) *Server {
	for _, s := range c.nodes {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// freeNodePort returns a port that was free a moment ago, as was the port 10000 above, on which nodes talk to each node. Both
// are below the ports of outgoing connections.
func freeNodePort() (int, error) {
	const lowest, count = 10000, 12000
	var last error
	for range 100 {
		port := lowest + rand.IntN(count)
		if last = bothFree(port, port+busOffset); last == nil {
			return port, nil
		}
	}
	return 0, last
}

func bothFree(ports ...int) error {
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		defer l.Close()
	}
	return nil
}

// configureNode makes a server a node that loses no time in synchronizing.
func (s *Server) configureNode(set func(...string)) {
	set("cluster-enabled", "yes")
	set("cluster-config-file", "nodes.conf")
	set(nodeTimeoutOption, strconv.FormatInt(nodeTimeout.Milliseconds(), 10))
	set("cluster-require-full-coverage", "no")
	set("cluster-replica-validity-factor", "0")
	set("cluster-migration-barrier", "10")
	set("repl-diskless-sync", "yes")
	set("repl-diskless-sync-delay", "0")
	set("repl-ping-replica-period", "1")
	if s.opts.TLS {
		set("tls-cluster", "yes")
		set("tls-replication", "yes")
	}
	if s.guarded() {
		set("masteruser", checker)
		set("masterauth", checker)
	}
}
