// Values is a program with conversions, batches and iterators, for a test of the packages linked into the program.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

type user struct {
	Name string `redis:"name"`
}

func main() {
	ctx := context.Background()
	pool, err := conn.Open(ctx, conn.Config{Addr: "localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Do(ctx, "HSET", "user", resp.Fields(user{"Ada"})))
	fmt.Println(resp.As[user](pool.Do(ctx, "HGETALL", "user")))
	fmt.Println(pool.Block(ctx, "BLPOP", "jobs", 1))
	var q conn.Queue
	hits := conn.Add[int](&q, "INCR", "hits")
	fmt.Println(q.Run(ctx, pool))
	fmt.Println(hits.Get())
	for key, err := range conn.Scan(ctx, pool) {
		fmt.Println(key, err)
	}
}
