package redistest

import (
	"fmt"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// checker is the ACL user of checks on a server that has a password or users.
const checker = "redistest"

// guarded reports whether checks must authenticate.
func (s *Server) guarded() bool { return s.opts.Password != "" || len(s.opts.Users) > 0 }

// Do runs a command on a connection apart from everything under test, and returns the reply. An error, also in reply, ends the
// test: only the test's own goroutine may call Do, further goroutines have Try. During the call, CLIENT LIST has a further
// client.
func (s *Server) Do(args ...any) resp.Value {
	s.t.Helper()
	v, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("redistest: %v: %v", args[0], err)
	}
	return v
}

// Try is Do for callers who expect an error, or are not the test's own goroutine. An error in reply is a resp.Error.
func (s *Server) Try(args ...any) (resp.Value, error) {
	c, err := s.dialCheck()
	if err != nil {
		return resp.Value{}, err
	}
	defer c.nc.Close()
	return c.do(args...)
}

// Changes returns how many changes of its data the server has counted since its last save. A write without an effect is none. As with
// Do, an error ends the test.
func (s *Server) Changes() string {
	s.t.Helper()
	info, err := s.info("INFO", "persistence")
	if err != nil {
		s.t.Fatalf("redistest: INFO: %v", err)
	}
	return info["rdb_changes_since_last_save"]
}

// Key is a key of a server.
type Key struct {
	Name string
	Type string        // as in the reply to TYPE
	TTL  time.Duration // -1 ms if the key does not expire
	// Value of a string is the quoted string; a list is ["a" "b"], a set {"a" "b"} in order of its members, a hash
	// {"field":"value" ...} in order of its fields, and a sorted set {"member":1 ...} in the server's order.
	Value string
}

// String is type, name, remaining time in milliseconds and value.
func (k Key) String() string {
	return fmt.Sprintf("%s %s %d %s", k.Type, k.Name, k.TTL.Milliseconds(), k.Value)
}

// Keys returns all keys of database 0 in order of their names, without keys that expire meanwhile. As with Do, an error ends
// the test.
func (s *Server) Keys() []Key {
	s.t.Helper()
	c, err := s.dialCheck()
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	defer c.nc.Close()
	keys, err := c.keys()
	if err != nil {
		s.t.Fatalf("redistest: keys: %v", err)
	}
	return keys
}

// Dump is Keys as text, a line for each.
func (s *Server) Dump() []string {
	s.t.Helper()
	var lines []string
	for _, k := range s.Keys() {
		lines = append(lines, k.String())
	}
	return lines
}

// check is a plain connection in RESP2: a command, a reply.
type check struct {
	nc net.Conn
	r  *resp.Reader
}

// dialCheck connects by the server's unix socket. Every server here has a unix socket beside its other addresses.
func (s *Server) dialCheck() (*check, error) {
	nc, err := net.DialTimeout("unix", s.socket(), Patience)
	if err != nil {
		return nil, err
	}
	c := &check{nc: nc, r: resp.NewReader(nc, resp.Limits{})}
	if s.guarded() {
		if _, err := c.do("AUTH", checker, ""); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *check) send(args ...any) error {
	buf, err := resp.AppendCommand(nil, args...)
	if err != nil {
		return err
	}
	if err := c.nc.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	_, err = c.nc.Write(buf)
	return err
}

func (c *check) do(args ...any) (resp.Value, error) {
	if err := c.send(args...); err != nil {
		return resp.Value{}, err
	}
	v, err := c.r.Read()
	if err == nil {
		err = v.Err()
	}
	return v, err
}

// texts is a list of strings.
func texts(v resp.Value) ([]string, error) {
	list := make([]string, v.Len())
	for i := range list {
		var err error
		if list[i], err = v.At(i).Text(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *check) keys() ([]Key, error) {
	names := map[string]bool{}
	for cursor := ""; cursor != "0"; {
		reply, err := c.do("SCAN", max(cursor, "0"), "COUNT", 1000)
		if err != nil {
			return nil, err
		}
		if cursor, err = reply.At(0).Text(); err != nil {
			return nil, err
		}
		page, err := texts(reply.At(1))
		if err != nil {
			return nil, err
		}
		for _, name := range page {
			names[name] = true // SCAN may return a name twice
		}
	}
	var keys []Key
	for name := range names {
		k, err := c.key(name)
		if err != nil {
			return nil, err
		}
		if k.Type != "none" {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys, nil
}

// key reads a key in a transaction, so that its parts belong together. The type is read before and does not change in a test; a
// deleted key has type none.
func (c *check) key(name string) (Key, error) {
	v, err := c.do("TYPE", name)
	if err != nil {
		return Key{}, err
	}
	kind, err := v.Text()
	if err != nil {
		return Key{}, err
	}
	read := map[string][]any{
		"string": {"GET", name},
		"hash":   {"HGETALL", name},
		"list":   {"LRANGE", name, 0, -1},
		"set":    {"SMEMBERS", name},
		"zset":   {"ZRANGE", name, 0, -1, "WITHSCORES"},
	}[kind]
	if read == nil {
		return Key{Name: name, Type: kind}, nil
	}
	for _, cmd := range [][]any{{"MULTI"}, {"PTTL", name}, read} {
		if _, err := c.do(cmd...); err != nil {
			return Key{}, err
		}
	}
	reply, err := c.do("EXEC")
	if err != nil {
		return Key{}, err
	}
	ttl, err := reply.At(0).Int()
	if err != nil {
		return Key{}, err
	}
	if ttl == -2 {
		return Key{Name: name, Type: "none"}, nil
	}
	value, err := render(kind, reply.At(1))
	return Key{Name: name, Type: kind, TTL: time.Duration(ttl) * time.Millisecond, Value: value}, err
}

// render is the text of a value as Key describes.
func render(kind string, v resp.Value) (string, error) {
	if kind == "string" {
		text, err := v.Text()
		return strconv.Quote(text), err
	}
	list, err := texts(v)
	if err != nil {
		return "", err
	}
	var words []string
	for i := 0; i < len(list); i++ {
		word := strconv.Quote(list[i])
		switch kind {
		case "hash":
			i++
			word += ":" + strconv.Quote(list[i])
		case "zset":
			i++
			word += ":" + list[i]
		}
		words = append(words, word)
	}
	if kind == "hash" || kind == "set" {
		sort.Strings(words)
	}
	if kind == "list" {
		return "[" + strings.Join(words, " ") + "]", nil
	}
	return "{" + strings.Join(words, " ") + "}", nil
}
