package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// loop is an endless source that repeats data and fills every read completely.
type loop struct {
	data string
	at   int
}

func (l *loop) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k := copy(p[n:], l.data[l.at:])
		n += k
		if l.at += k; l.at == len(l.data) {
			l.at = 0
		}
	}
	return n, nil
}

// Replies for the reading benchmarks.
var (
	replyBulk      = bulk(64)
	replyLargeBulk = bulk(16 << 10)
	replyArray     = "*100\r\n" + strings.Repeat(bulk(32), 100)
	replyMap       = "%4\r\n+server\r\n$5\r\nredis\r\n+proto\r\n:3\r\n" +
		"+modules\r\n*2\r\n%2\r\n+name\r\n+json\r\n+ver\r\n:20000\r\n%2\r\n+name\r\n+search\r\n+ver\r\n:20100\r\n" +
		"+flags\r\n~3\r\n+a\r\n#t\r\n,1.5\r\n"
)

func bulk(n int) string { return fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("x", n)) }

func BenchmarkRead(b *testing.B) {
	for _, bb := range []struct{ name, reply string }{
		{"simple", "+OK\r\n"},
		{"integer", ":12345678\r\n"},
		{"null", "$-1\r\n"},
		{"bulk64", replyBulk},
		{"bulk16K", replyLargeBulk},
		{"array100x32", replyArray},
		{"nestedMap", replyMap},
	} {
		b.Run(bb.name, func(b *testing.B) {
			chunk := bb.reply
			for len(chunk) < 256<<10 { // long reads keep the cost of the source low
				chunk += chunk
			}
			r := resp.NewReader(&loop{data: chunk}, resp.Limits{})
			b.SetBytes(int64(len(bb.reply)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSkip(b *testing.B) {
	r := resp.NewReader(&loop{data: strings.Repeat(replyArray, 64)}, resp.Limits{})
	b.SetBytes(int64(len(replyArray)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Skip(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendCommand(b *testing.B) {
	var buf [256]byte
	key, ttl := "lock:{orders}", int64(30000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := resp.AppendCommand(buf[:0], "SET", key, "owner", "NX", "PX", ttl); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCmd(b *testing.B) {
	key, ttl := "lock:{orders}", int64(30000)
	b.ReportAllocs()
	for b.Loop() {
		if c := resp.Cmd("SET", key, "owner", "NX", "PX", ttl).On(key); c.Len() != 6 {
			b.Fatal(c)
		}
	}
}
