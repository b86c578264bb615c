package cluster_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/cluster"
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
