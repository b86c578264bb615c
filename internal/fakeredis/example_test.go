package fakeredis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// The server runs the first INCR, but the client never learns it.
func ExampleServer_Intercept() {
	srv := fakeredis.New()
	defer srv.Close()
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "INCR" && cmd.N == 1 {
			return fakeredis.RunThenClose()
		}
		return fakeredis.Run()
	})
	for range 2 {
		nc, err := srv.Dial(context.Background(), "tcp", "fake:6379")
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.WriteString(nc, "INCR n\r\n")
		reply, err := bufio.NewReader(nc).ReadString('\n')
		fmt.Printf("%q %v\n", reply, err)
		_ = nc.Close()
	}
	// Output:
	// "" EOF
	// ":2\r\n" <nil>
}

// A script is a Go function that takes the place of its Lua source.
func ExampleServer_Script() {
	const source = "return redis.call('incrby', KEYS[1], ARGV[1])"
	srv := fakeredis.New()
	defer srv.Close()
	srv.Script(source, func(call *fakeredis.Call) any {
		return call.Do("incrby", call.Keys[0], call.Args[0])
	})
	fmt.Println(srv.Do("EVALSHA", fakeredis.Digest(source), "1", "n", "5"))
	fmt.Println(srv.Do("EVAL", source, "1", "n", "5"))
	fmt.Println(srv.Do("EVALSHA", fakeredis.Digest(source), "1", "n", "5"))
	// Output:
	// NOSCRIPT No matching script. Please use EVAL.
	// 5
	// 10
}
