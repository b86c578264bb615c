package script_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/script"
)

func ExampleNew() {
	s := script.New("return 1")
	fmt.Println(s.Digest())
	// Output: e0e1f9fabfc9d4800c877a703b823ac0578ff8db
}

// A script adds to a counter, but not beyond a limit.
func ExampleScript_Run() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	add := script.New(`
		local n = tonumber(redis.call('GET', KEYS[1]) or 0) + ARGV[1]
		if n > tonumber(ARGV[2]) then return false end
		redis.call('SET', KEYS[1], n, 'EX', 60)
		return n`)
	for range 3 {
		v, err := add.Run(ctx, pool, []string{"example:visitors"}, 20, 50)
		switch {
		case err != nil:
			log.Fatal(err)
		case v.IsNull():
			fmt.Println("full")
		default:
			n, _ := v.Int()
			fmt.Println(n)
		}
	}
	// Output:
	// 20
	// 40
	// full
}

// Both calls have a key in common. In any order the second can be sent by digest, and does not make the first go with its source.
func ExampleCall_AnyOrder() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	set := script.New("redis.call('HSET', KEYS[1], ARGV[1], 1, 'b', 2) return 2")
	expire := script.New("redis.call('PEXPIRE', KEYS[1], 60000) return 1")
	keys := []string{"example:hash"}
	replies, err := script.RunBatch(ctx, pool, []script.Call{set.Call(keys, "a"), expire.Call(keys).AnyOrder()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(replies))
	// Output: 2
}

// Several runs in one write, each with its own reply.
func ExampleRunBatch() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	length := script.New("return #ARGV[1]")
	replies, err := script.RunBatch(ctx, pool, []script.Call{
		length.Call(nil, "one"),
		length.Call(nil, "three"),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range replies {
		n, _ := v.Int()
		fmt.Println(n)
	}
	// Output:
	// 3
	// 5
}
