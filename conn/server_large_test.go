package conn_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// TestServerLargeValues: values around the length from which they are written and read in their own memory arrive whole,
// by every way to send them, among small commands of other callers.
func TestServerLargeValues(t *testing.T) {
	sizes := []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 100_000, 1 << 20, 3<<20 + 7}
	for _, opts := range []redistest.Options{{}, {Unix: true}, {TLS: true}} {
		redistest.RunOptions(t, opts, func(t *testing.T, s *redistest.Server) {
			p := openPool(t, s.Config())
			defer p.Close()
			var callers sync.WaitGroup
			for i, size := range sizes {
				callers.Go(func() { largeValues(t, p, fmt.Sprint("large:", i), size) })
				callers.Go(func() {
					for n := range 200 {
						want(t, p, fmt.Sprint(n), "ECHO", fmt.Sprint(n))
					}
				})
			}
			callers.Wait()
		})
	}
}

func largeValues(t *testing.T, p *conn.Pool, key string, size int) {
	ctx := t.Context()
	value := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
	for way, set := range []func(v []byte) (resp.Value, error){
		func(v []byte) (resp.Value, error) { return p.Do(ctx, "SET", key, v) },
		func(v []byte) (resp.Value, error) { return p.Do(ctx, "SET", key, string(v), "PX", 100_000) },
		func(v []byte) (resp.Value, error) { return p.Send(ctx, resp.Cmd("SET", key, v)) },
		func(v []byte) (resp.Value, error) {
			replies, err := p.SendBatch(ctx, []resp.Command{resp.Cmd("PING"), resp.Cmd("SET", key, v)})
			return replies[len(replies)-1], err
		},
		func(v []byte) (reply resp.Value, err error) {
			err = p.With(ctx, func(c *conn.Conn) error {
				reply, err = c.Do(ctx, "MSET", key, v, key+":too", string(v))
				return err
			})
			return reply, err
		},
	} {
		value[0] = byte('a' + way)
		reply, err := set(value)
		if text, _ := reply.Text(); err != nil || text != "OK" {
			t.Errorf("%d bytes, way %d: %v, %v", size, way, reply, err)
			return
		}
		got, err := p.Do(ctx, "GET", key)
		if text, _ := got.Text(); err != nil || text != string(value) {
			t.Errorf("%d bytes, way %d: GET has %d bytes, error %v; the same: %v", size, way, len(text), err, text == string(value))
		}
	}
	got, err := p.Do(ctx, "MGET", key, "none", key+":too")
	if err != nil || got.Len() != 3 {
		t.Errorf("MGET = %v, %v", got, err)
		return
	}
	for _, i := range []int{0, 2} {
		if text, _ := got.At(i).Text(); text != string(value) {
			t.Errorf("%d bytes: element %d of MGET is another: %.10s", size, i, strings.TrimRight(text, "0"))
		}
	}
}
