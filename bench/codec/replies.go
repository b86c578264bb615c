package codec

import (
	"fmt"
	"io"
	"strings"
)

// Reply is a reply to be read over and over.
type Reply struct {
	Name string
	Text string
}

// Replies are the measured replies.
func Replies() []Reply {
	array := "*100\r\n" + strings.Repeat("$32\r\n"+strings.Repeat("e", 32)+"\r\n", 100)
	return []Reply{
		{"simple", "+OK\r\n"},
		{"integer", ":12345678\r\n"},
		{"bulk64", bulk(64)},
		{"bulk16k", bulk(16 << 10)},
		{"array100", array},
		{"map", nested},
	}
}

func bulk(n int) string { return fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("b", n)) }

// nested is a map as a server might answer with: text, numbers, an array and two maps.
const nested = "%5\r\n" +
	"$6\r\nserver\r\n$5\r\nredis\r\n" +
	"$7\r\nversion\r\n$6\r\n7.0.15\r\n" +
	"$5\r\nproto\r\n:3\r\n" +
	"$5\r\nflags\r\n*4\r\n$4\r\nfast\r\n$5\r\nwrite\r\n:12\r\n#t\r\n" +
	"$4\r\nkeys\r\n%2\r\n" +
	"$5\r\nfirst\r\n%2\r\n$4\r\nname\r\n$8\r\nkey:0001\r\n$3\r\nttl\r\n:3600\r\n" +
	"$6\r\nsecond\r\n%2\r\n$4\r\nname\r\n$8\r\nkey:0002\r\n$3\r\nttl\r\n:-1\r\n"

// endless reads the same text again and again, as much at a time as is asked for.
type endless struct {
	text string
	at   int
}

// newEndless repeats the text often enough for most Reads to be a single copy.
func newEndless(text string) io.Reader {
	return &endless{text: strings.Repeat(text, max(1, (64<<10)/len(text)))}
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.at:])
	e.at += n
	if e.at == len(e.text) {
		e.at = 0
	}
	return n, nil
}
