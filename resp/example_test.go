package resp_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// answers are replies of a server.
const answers = "*2\r\n$3\r\none\r\n:2\r\n" + "-NOSCRIPT No matching script. Please use EVAL.\r\n" + "_\r\n"

func ExampleReader() {
	r := resp.NewReader(strings.NewReader(answers), resp.Limits{})
	for {
		v, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println("the connection is unusable:", err)
			break
		}
		switch err := v.Err(); {
		case errors.Is(err, resp.ErrNoScript):
			fmt.Println("the script must be loaded")
		case v.IsNull():
			fmt.Println("nothing there")
		default:
			fmt.Println(v.Len(), "elements:", v)
		}
	}
	// Output:
	// 2 elements: ["one" 2]
	// the script must be loaded
	// nothing there
}

func ExampleReader_Skip() {
	r := resp.NewReader(strings.NewReader("*2\r\n$3\r\nnot\r\n+wanted\r\n"+":7\r\n"), resp.Limits{})
	if err := r.Skip(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Read())
	// Output: 7 <nil>
}

func ExampleValue() {
	r := resp.NewReader(strings.NewReader(":1\r\n"+"$1\r\n1\r\n"+"#t\r\n"), resp.Limits{})
	for range 3 {
		v, _ := r.Read()
		n, _ := v.Int()
		yes, _ := v.Bool()
		fmt.Println(v.Kind(), n, yes)
	}
	// Output:
	// integer 1 true
	// bulk string 1 true
	// boolean 1 true
}

// Pairs walks the map of RESP3 and the flat array of RESP2 alike.
func ExampleValue_Pairs() {
	r := resp.NewReader(strings.NewReader(
		"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"+
			"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n"), resp.Limits{})
	for range 2 {
		v, _ := r.Read()
		pairs, err := v.Pairs()
		if err != nil {
			fmt.Println(err)
		}
		for key, value := range pairs {
			fmt.Print(key, "=", value, " ")
		}
		fmt.Println(v.Kind())
	}
	// Output:
	// "server"="redis" "proto"=3 map
	// "server"="redis" "proto"=2 array
}

func ExampleValue_Attrs() {
	r := resp.NewReader(strings.NewReader("|1\r\n+ttl\r\n:3600\r\n$5\r\nvalue\r\n"), resp.Limits{})
	v, _ := r.Read()
	for key, value := range v.Attrs() {
		fmt.Println(key, value)
	}
	// Output: "ttl" 3600
}

func ExampleKind() {
	fmt.Println(resp.Null, resp.VerbatimString, resp.Push)
	// Output: null verbatim string push
}

func ExampleCmd() {
	c := resp.Cmd("SET", "key", "value", "PX", 30000)
	fmt.Printf("%q\n", c.AppendTo(nil))
	// Output: "*5\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n$2\r\nPX\r\n$5\r\n30000\r\n"
}

func ExampleCommand_On() {
	c := resp.Cmd("PUBLISH", "channel:{lock}", "0").On("lock")
	key, ok := c.Key()
	fmt.Println(c, key, ok)
	// Output: PUBLISH (2 arguments) lock true
}

func ExampleCommand_Err() {
	var ttl *int
	fmt.Println(resp.Cmd("PEXPIRE", "key", ttl).Err())
	// Output: resp: argument 2 is a *int: pass what it points to
}

func ExampleAppendCommand() {
	wire, err := resp.AppendCommand(nil, "GET", "key")
	fmt.Printf("%q %v\n", wire, err)
	// Output: "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n" <nil>
}

func ExampleError() {
	var err error = resp.Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	fmt.Println(errors.Is(err, resp.ErrWrongType), errors.Is(err, resp.ErrReadOnly))
	// Output: true false
}

func ExampleError_Class() {
	err := resp.Error("ERR Error running script (call to f_1b): @user_script:1: @user_script: 1: -READONLY You can't write.")
	fmt.Println(err.Prefix(), err.Class())
	// Output: ERR READONLY
}

func ExampleRedirect() {
	r, ok := resp.Error("MOVED 3999 ::1:6381").Redirect()
	fmt.Println(r.Slot, r.Host, r.Port, ok)
	// Output: 3999 ::1 6381 true
}

func ExampleLimits() {
	r := resp.NewReader(strings.NewReader("*1000000\r\n"), resp.Limits{Elements: 1000})
	_, err := r.Read()
	limit, _ := errors.AsType[*resp.LimitError](err)
	fmt.Println(limit.Limit, limit.Max)
	// Output: elements 1000
}

func ExampleSyntaxError() {
	r := resp.NewReader(strings.NewReader("HTTP/1.1 400 Bad Request\r\n"), resp.Limits{})
	_, err := r.Read()
	fmt.Println(err)
	// Output: resp: not RESP: unknown type byte 'H', as of an HTTP server, at offset 0
}

func ExampleKindError() {
	r := resp.NewReader(strings.NewReader("_\r\n"), resp.Limits{})
	v, _ := r.Read()
	_, err := v.Int()
	fmt.Println(err)
	// Output: resp: null is not an integer
}
