package conn_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

func ExampleQueue() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()

	var q conn.Queue
	conn.Add[string](&q, "SET", "visits", 41)
	visits := conn.Add[int](&q, "INCR", "visits")
	list := conn.Add[[]string](&q, "LRANGE", "visits", 0, -1)
	if err := q.Run(ctx, p); err != nil {
		fmt.Println(err)
	}
	fmt.Println(visits.Get())
	_, err := list.Get()
	fmt.Println(err)
	// Output:
	// conn: command 3 of 3, LRANGE: WRONGTYPE Operation against a key holding the wrong kind of value
	// 42 <nil>
	// WRONGTYPE Operation against a key holding the wrong kind of value
}

// Both commands run, or neither.
func ExampleQueue_RunTx() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()

	var q conn.Queue
	left := conn.Add[int](&q, "DECRBY", "account:a", 5)
	right := conn.Add[int](&q, "INCRBY", "account:b", 5)
	if err := q.RunTx(ctx, p); err != nil {
		log.Fatal(err)
	}
	fmt.Println(left.Get())
	fmt.Println(right.Get())
	// Output:
	// -5 <nil>
	// 5 <nil>
}

func ExampleScan() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "MSET", []string{"city:1", "Bern", "city:2", "Oslo"}); err != nil {
		log.Fatal(err)
	}

	var keys []string
	for key, err := range conn.Scan(ctx, p, "MATCH", "city:*", "COUNT", 1000) {
		if err != nil {
			log.Fatal(err)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	fmt.Println(slices.Compact(keys))
	// Output: [city:1 city:2]
}

func ExampleHScan() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "HSET", "capital", "Norway", "Oslo"); err != nil {
		log.Fatal(err)
	}
	for pair, err := range conn.HScan(ctx, p, "capital") {
		fmt.Println(pair.Field, pair.Value, err)
	}
	// Output: Norway Oslo <nil>
}

func ExampleZScan() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "ZADD", "height", 1.7, "Ada"); err != nil {
		log.Fatal(err)
	}
	for s, err := range conn.ZScan(ctx, p, "height") {
		fmt.Println(s.Member, s.Score, err)
	}
	// Output: Ada 1.7 <nil>
}

func ExamplePool_Block() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "RPUSH", "letters", "a"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		letter, ok, err := resp.Maybe[[]string](p.Block(ctx, "BLPOP", "letters", 0.01))
		fmt.Println(letter, ok, err)
	}
	// Output:
	// [letters a] true <nil>
	// [] false <nil>
}

func ExamplePool_Watch() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "SET", "price", 21); err != nil {
		log.Fatal(err)
	}
	_, err := p.Watch(ctx, []string{"price"}, func(c *conn.Conn) ([]resp.Command, error) {
		price, err := resp.As[int](c.Do(ctx, "GET", "price"))
		return []resp.Command{resp.Cmd("SET", "price", 2*price)}, err
	})
	price, err2 := resp.As[int](p.Do(ctx, "GET", "price"))
	fmt.Println(price, err, err2)
	// Output: 42 <nil> <nil>
}

func ExampleXRange() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "XADD", "log", "1-0", "text", "started"); err != nil {
		log.Fatal(err)
	}
	for e, err := range conn.XRange(ctx, p, "log", "-", "+") {
		fmt.Println(e.ID, e.Get("text"), err)
	}
	// Output: 1-0 started <nil>
}

// An iterator goes on where the last reply has ended.
func ExampleSScan() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	if _, err := p.Do(ctx, "SADD", "colours", []string{"blue", "red"}); err != nil {
		log.Fatal(err)
	}
	var colours []string
	for colour, err := range conn.SScan(ctx, p, "colours") {
		if err != nil {
			log.Fatal(err)
		}
		colours = append(colours, colour)
	}
	slices.Sort(colours)
	fmt.Println(colours)
	// Output: [blue red]
}
