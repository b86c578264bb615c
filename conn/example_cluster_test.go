package conn_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// exampleCluster is the cluster of the examples: two servers in memory, each with half of the slots.
type exampleCluster struct {
	*cluster.Cluster
	servers map[string]*fakeredis.Server
}

// openExampleCluster opens a Cluster for the examples.
func openExampleCluster(ctx context.Context) exampleCluster {
	const a, b = "10.0.0.1:7001", "10.0.0.2:7002"
	c := exampleCluster{servers: map[string]*fakeredis.Server{a: fakeredis.New(), b: fakeredis.New()}}
	slots := "*2\r\n" + exampleSlots(0, 8191, "10.0.0.1", 7001) + exampleSlots(8192, 16383, "10.0.0.2", 7002)
	for _, srv := range c.servers {
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "CLUSTER" {
				return fakeredis.Reply(slots)
			}
			return fakeredis.Run()
		})
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return c.servers[addr].Dial(ctx, network, addr)
	}
	var err error
	c.Cluster, err = cluster.Open(ctx, cluster.Config{Addrs: []string{a}, Node: conn.Config{Dial: dial}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// exampleSlots is an element of the reply to CLUSTER SLOTS.
func exampleSlots(first, last int, host string, port int) string {
	return fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*2\r\n+%s\r\n:%d\r\n", first, last, host, port)
}

func (c exampleCluster) Close() {
	_ = c.Cluster.Close()
	for _, srv := range c.servers {
		srv.Close()
	}
}
