package codec

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mediocregopher/radix/v4/resp"
	"github.com/mediocregopher/radix/v4/resp/resp3"
	"github.com/redis/rueidis"
)

// GoRedis makes any of a reply, as go-redis' Do does.
func GoRedis(_ string, src io.Reader) func() error {
	r := newGoRedisReader(src)
	return func() error {
		_, err := goRedisReply(r)
		return err
	}
}

// GoRedisTyped reads a reply as the typed commands do: Get, Incr, LRange. There is none for the nested map.
func GoRedisTyped(reply string, src io.Reader) func() error {
	r := newGoRedisReader(src)
	switch reply {
	case "integer":
		return func() error { _, err := goRedisInt(r); return err }
	case "array100":
		return func() error {
			n, err := goRedisArrayLen(r)
			list := make([]string, n)
			for i := 0; i < n && err == nil; i++ {
				list[i], err = goRedisString(r)
			}
			return err
		}
	case "map":
		return nil
	}
	return func() error { _, err := goRedisString(r); return err }
}

// Rueidis makes a RedisMessage of a reply.
func Rueidis(_ string, src io.Reader) func() error {
	br := bufio.NewReaderSize(src, rueidis.DefaultReadBuffer)
	return func() error {
		_, err := readRueidis(br)
		return err
	}
}

// RueidisTyped turns a reply into a RedisMessage, and the message into the type of its users.
func RueidisTyped(reply string, src io.Reader) func() error {
	br := bufio.NewReaderSize(src, rueidis.DefaultReadBuffer)
	use := func(m *rueidis.RedisMessage) error { _, err := m.ToString(); return err }
	switch reply {
	case "integer":
		use = func(m *rueidis.RedisMessage) error { _, err := m.ToInt64(); return err }
	case "array100":
		use = func(m *rueidis.RedisMessage) error { _, err := m.AsStrSlice(); return err }
	case "map":
		return nil
	}
	return func() error {
		m, err := readRueidis(br)
		if err != nil {
			return err
		}
		return use(&m)
	}
}

// Redigo turns a reply into an any. It knows no maps.
func Redigo(reply string, src io.Reader) func() error {
	if reply == "map" {
		return nil
	}
	c := redis.NewConn(source{src}, 0, 0)
	return func() error {
		_, err := c.Receive()
		return err
	}
}

// source is a read-only connection.
type source struct{ io.Reader }

func (source) Write(b []byte) (int, error)      { return len(b), nil }
func (source) Close() error                     { return nil }
func (source) LocalAddr() net.Addr              { return nil }
func (source) RemoteAddr() net.Addr             { return nil }
func (source) SetDeadline(time.Time) error      { return nil }
func (source) SetReadDeadline(time.Time) error  { return nil }
func (source) SetWriteDeadline(time.Time) error { return nil }

// Radix turns a reply into an any. Its maps cannot hold the keys of the nested map.
func Radix(reply string, src io.Reader) func() error {
	if reply == "map" {
		return nil
	}
	o := resp.NewOpts()
	br := o.GetBufferedReader(src)
	return func() error {
		var v any
		return resp3.Unmarshal(br, &v, o)
	}
}

// RadixTyped reads a reply into a variable of its type.
func RadixTyped(reply string, src io.Reader) func() error {
	o := resp.NewOpts()
	br := o.GetBufferedReader(src)
	switch reply {
	case "integer":
		return func() error { var n int64; return resp3.Unmarshal(br, &n, o) }
	case "array100":
		return func() error { var list []string; return resp3.Unmarshal(br, &list, o) }
	case "map":
		return nil
	}
	return func() error { var text string; return resp3.Unmarshal(br, &text, o) }
}
