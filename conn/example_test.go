package conn_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// openExample opens a Pool for the server of the examples.
func openExample(ctx context.Context) *conn.Pool {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	p, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	return p
}

func ExampleOpen() {
	ctx := context.Background()
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL")) // redis://user:password@host:6379/0
	if err != nil {
		log.Fatal(err)
	}
	p, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	v, err := p.Do(ctx, "SET", "greeting", "hello", "NX", "PX", 30_000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Text())
	v, err = p.Do(ctx, "GET", "nothing")
	fmt.Println(v.IsNull(), err)
	_, err = p.Do(ctx, "INCR", "greeting")
	fmt.Println(err)
	// Output:
	// OK <nil>
	// true <nil>
	// ERR value is not an integer or out of range
}

func ExamplePool_SendBatch() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()

	values, err := p.SendBatch(ctx, []resp.Command{
		resp.Cmd("SET", "batch", "text"),
		resp.Cmd("INCR", "batch"),
		resp.Cmd("STRLEN", "batch"),
	})
	if err != nil {
		log.Fatal(err) // an error of the connection; error replies are among the values
	}
	for _, v := range values {
		fmt.Println(v.Text())
	}
	// Output:
	// OK <nil>
	//  ERR value is not an integer or out of range
	// 4 <nil>
}

func ExamplePool_With() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()

	// Add one, unless another client writes in the meantime.
	add := func(c *conn.Conn) error {
		if _, err := c.Do(ctx, "WATCH", "counter"); err != nil {
			return err
		}
		v, err := c.Do(ctx, "GET", "counter")
		if err != nil {
			return err
		}
		n := int64(0)
		if !v.IsNull() {
			if n, err = v.Int(); err != nil {
				return err
			}
		}
		_, err = c.Tx(ctx, []resp.Command{resp.Cmd("SET", "counter", n+1)})
		return err
	}
	err := p.With(ctx, add)
	for errors.Is(err, conn.ErrTxAborted) {
		err = p.With(ctx, add)
	}
	if err != nil {
		log.Fatal(err)
	}
	v, err := p.Do(ctx, "GET", "counter")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Text())
	// Output: 1 <nil>
}

func ExamplePool_Tx() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()

	values, err := p.Tx(ctx, []resp.Command{
		resp.Cmd("HINCRBY", "stock", "apples", -3),
		resp.Cmd("RPUSH", "orders", "3 apples"),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range values {
		fmt.Println(v.Int())
	}
	// Output:
	// -3 <nil>
	// 1 <nil>
}

func ExampleDial() {
	ctx := context.Background()
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	c, err := conn.Dial(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	if _, err := c.Do(ctx, "RPUSH", "jobs", "one"); err != nil {
		log.Fatal(err)
	}
	v, err := c.Do(ctx, "BLPOP", "jobs", 5) // Pool.Do would refuse BLPOP
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.At(1).Text())
	// Output: one <nil>
}

func ExampleError() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := conn.Open(ctx, conn.Config{Addr: "127.0.0.1:1"}) // no server listens there

	fmt.Println(errors.Is(err, conn.ErrNotSent), errors.Is(err, conn.ErrUncertain), conn.SafeToRetry(err))
	// Output: true false true
}

func ExampleTrace() {
	ctx := context.Background()
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	cfg.Trace = &conn.Trace{
		Dial: func(i conn.DialInfo) { fmt.Println("dial", i.Err) },
		CommandEnd: func(_ context.Context, i conn.CommandEnd) {
			fmt.Println(i.Operation(), i.Attempts, i.Sent, i.Err)
		},
	}
	p, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Do(ctx, "SET", "traced", "a value that is told to nobody"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// dial <nil>
	// SET 1 true <nil>
}

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

func ExampleParseURL() {
	cfg, err := conn.ParseURL("rediss://worker:s3cret@db.example/2?timeout=2s&client_name=worker-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Addr, cfg.DB, cfg.Timeout, cfg.ClientName)
	fmt.Println(cfg)

	_, err = conn.ParseURL("redis://db.example?time_out=2s")
	fmt.Println(err)
	// Output:
	// db.example:6379 2 2s worker-1
	// rediss://worker@db.example:6379?db=2
	// conn: url: unknown parameter "time_out"
}

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
