package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

func ExampleSlot() {
	fmt.Println(cluster.Slot("user:{42}:name") == cluster.Slot("user:{42}:mail"), cluster.Slot("foo"))
	// Output: true 12182
}

func ExampleParseURL() {
	cfg, err := cluster.ParseURL("rediss-cluster://app:secret@node1.example:6379,node2.example:6379?timeout=2s")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cfg)
	fmt.Println(cfg.Addrs, cfg.Node.Timeout)
	// Output:
	// rediss-cluster://app@node1.example:6379,node2.example:6379
	// [node1.example:6379 node2.example:6379] 2s
}

func ExampleOpen() {
	ctx := context.Background()
	c, err := cluster.Open(ctx, cluster.Config{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	replies, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", "here"), resp.Cmd("INCR", "there")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(replies[0].Int())
}

func ExampleCluster_Masters() {
	ctx := context.Background()
	c, err := cluster.Open(ctx, cluster.Config{Addrs: []string{"10.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	total := int64(0)
	for node, err := range c.Masters(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		size, err := node.Do(ctx, "DBSIZE")
		if err != nil {
			log.Fatal(node.Addr(), err)
		}
		n, _ := size.Int()
		total += n
	}
	fmt.Println(total)
}

// withCluster calls fn with a Cluster of three nodes in memory.
func withCluster(fn func(ctx context.Context, c *cluster.Cluster)) {
	f := newFakes(nil)
	defer f.close()
	ctx := context.Background()
	c, err := cluster.Open(ctx, f.config(cluster.Config{Addrs: []string{nodeA}}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fn(ctx, c)
}

// The keys are in several slots, on several nodes.
func ExampleCluster_MGet() {
	withCluster(func(ctx context.Context, c *cluster.Cluster) {
		err := c.MSet(ctx, resp.Fields(map[string]int{"apples": 3, "pears": 5, "plums": 7}))
		if err != nil {
			log.Fatal(err)
		}
		stock, err := resp.Each[*int](c.MGet(ctx, []string{"pears", "cherries", "apples"}))
		if partial, ok := errors.AsType[*cluster.BatchError](err); ok {
			fmt.Println(partial.At(0)) // some keys have failed; At tells which
		}
		fmt.Println(*stock[0], stock[1] == nil, *stock[2], err)
		fmt.Println(c.Del(ctx, []string{"apples", "pears", "cherries"}))
		fmt.Println(c.Exists(ctx, []string{"apples", "plums"}))
		fmt.Println(c.Unlink(ctx, []string{"plums"}))
	})
	// Output:
	// 5 true 3 <nil>
	// 2 <nil>
	// 1 <nil>
	// 1 <nil>
}

func ExampleCluster_Block() {
	withCluster(func(ctx context.Context, c *cluster.Cluster) {
		if _, err := c.Do(ctx, "RPUSH", "jobs", "sweep"); err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.Maybe[[]string](c.Block(ctx, "BLPOP", "jobs", 5)))
	})
	// Output: [jobs sweep] true <nil>
}

func ExampleCluster_Watch() {
	withCluster(func(ctx context.Context, c *cluster.Cluster) {
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, _, err := resp.Maybe[int](c.Do(ctx, "GET", "n"))
			return []resp.Command{resp.Cmd("SET", "n", 2*n+1), resp.Cmd("GET", "n")}, err
		}
		for range 3 {
			fmt.Println(c.Watch(ctx, []string{"n"}, double))
		}
	})
	// Output:
	// ["OK" "1"] <nil>
	// ["OK" "3"] <nil>
	// ["OK" "7"] <nil>
}
