package conn_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lockwire/lockwire/conn"
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
