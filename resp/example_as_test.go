package resp_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// answer returns a reply as a client returns it.
func answer(wire string) (resp.Value, error) {
	return resp.NewReader(strings.NewReader(wire), resp.Limits{}).Read()
}

// As stands around the call that returns the reply.
func ExampleAs() {
	n, err := resp.As[int](answer(":7\r\n")) // resp.As[int](pool.Do(ctx, "INCR", "hits"))
	fmt.Println(n, err)
	tags, err := resp.As[map[string]bool](answer("*4\r\n+new\r\n:1\r\n+sold\r\n:0\r\n"))
	fmt.Println(tags, err)

	type user struct {
		Name  string        `redis:"name"`
		Since time.Time     `redis:"since"`
		Limit time.Duration `redis:"limit,s"`
	}
	u, err := resp.As[user](answer("%2\r\n+name\r\n+Ada\r\n+limit\r\n:90\r\n"))
	fmt.Println(u.Name, u.Limit, err)
	_, err = resp.As[int](answer("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"))
	fmt.Println(err)
	// Output:
	// 7 <nil>
	// map[new:true sold:false] <nil>
	// Ada 1m30s <nil>
	// WRONGTYPE Operation against a key holding the wrong kind of value
}

// A missing key, an empty string, and the missing keys of MGET.
func ExampleMaybe() {
	fmt.Println(resp.Maybe[string](answer("_\r\n")))
	fmt.Println(resp.Maybe[string](answer("$0\r\n\r\n")))
	values, err := resp.As[[]*string](answer("*2\r\n+there\r\n_\r\n"))
	fmt.Println(*values[0], values[1] == nil, err)
	// Output:
	//  false <nil>
	//  true <nil>
	// there true <nil>
}

func ExampleEach() {
	one, _ := answer(":1\r\n")
	two, _ := answer("$1\r\n2\r\n")
	fmt.Println(resp.Each[int]([]resp.Value{one, two}, nil)) // resp.Each[int](pool.SendBatch(ctx, cmds))
	// Output: [1 2] <nil>
}

func ExampleFields() {
	type user struct {
		Name string    `redis:"name"`
		Seen time.Time `redis:"seen,ms"`
	}
	cmd := resp.Cmd("HSET", "user:1", resp.Fields(user{"Ada", time.UnixMilli(1_700_000_000_000)}))
	for word := range cmd.Args() {
		fmt.Println(word)
	}
	// Output:
	// HSET
	// user:1
	// name
	// Ada
	// seen
	// 1700000000000
}

func ExampleSeconds() {
	for _, wire := range []string{":90\r\n", ":-1\r\n", ":-2\r\n"} {
		switch left, err := resp.Seconds(answer(wire)); {
		case err != nil:
			fmt.Println(err)
		case left == resp.NoKey:
			fmt.Println("no such key")
		case left == resp.NoExpiry:
			fmt.Println("for ever")
		default:
			fmt.Println(left)
		}
	}
	// Output:
	// 1m30s
	// for ever
	// no such key
}

func ExampleEntries() {
	for e, err := range resp.Entries(answer("%1\r\n+jobs\r\n*1\r\n*2\r\n+1-0\r\n*2\r\n+name\r\n+sweep\r\n")) {
		fmt.Println(e.Stream, e.ID, e.Get("name"), err)
	}
	// Output: jobs 1-0 sweep <nil>
}
