package conn_test

import (
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// As and Entries understand a server in both versions of the protocol.
func TestServerConversions(t *testing.T) {
	onServer(t, func(t *testing.T, _ *redistest.Server, p *conn.Pool, _ int) {
		ctx := t.Context()
		do := func(args ...any) (resp.Value, error) { return p.Do(ctx, args...) }
		if _, err := do("HSET", "h", resp.Fields(map[string]any{"name": "Ada", "age": 36})); err != nil {
			t.Fatal(err)
		}
		if u, ok, err := resp.Maybe[user](do("HGETALL", "h")); u != (user{"Ada", 36}) || !ok || err != nil {
			t.Errorf("HGETALL as a struct = %v, %v, %v", u, ok, err)
		}
		if _, ok, err := resp.Maybe[user](do("HGETALL", "none")); ok || err != nil {
			t.Errorf("HGETALL of nothing = %v, %v", ok, err)
		}
		many := make([]any, 0, 5000)
		for i := range 2500 {
			many = append(many, i, fmt.Sprint("m", i))
		}
		if n, err := resp.As[int](do("ZADD", "z", many)); n != 2500 || err != nil {
			t.Fatalf("ZADD = %d, %v", n, err)
		}
		if top, err := resp.As[map[string]float64](do("ZREVRANGE", "z", 0, 1, "WITHSCORES")); len(top) != 2 || top["m2499"] != 2499 || err != nil {
			t.Errorf("ZREVRANGE = %v, %v", top, err)
		}
		scores := map[string]float64{}
		for s, err := range conn.ZScan(ctx, p, "z") {
			if err != nil {
				t.Fatal(err)
			}
			scores[s.Member] = s.Score
		}
		if len(scores) != 2500 || scores["m7"] != 7 {
			t.Errorf("ZSCAN has %d members", len(scores))
		}
		checkStream(t, p)
	})
}

func checkStream(t *testing.T, p *conn.Pool) {
	t.Helper()
	ctx := t.Context()
	var q conn.Queue
	for i := range 2100 {
		conn.Add[string](&q, "XADD", "s", fmt.Sprintf("%d-%d", i/3+1, i%3), resp.Fields(map[string]int{"n": i}))
	}
	conn.Add[string](&q, "XGROUP", "CREATE", "s", "g", "0")
	if err := q.Run(ctx, p); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range conn.XRange(ctx, p, "s", "-", "+") {
		if err != nil || e.Get("n") != fmt.Sprint(n) {
			t.Fatalf("entry %d is %v, %v", n, e, err)
		}
		n++
	}
	if n != 2100 {
		t.Errorf("%d entries, want 2100", n)
	}
	for range 2 {
		read := 0
		for e, err := range resp.Entries(p.Block(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 1100, "BLOCK", 1, "STREAMS", "s", ">")) {
			if m, convert := resp.As[map[string]int](e.Fields, err); convert != nil || e.Stream != "s" || len(m) != 1 {
				t.Fatalf("%v, %v, %v", e, m, convert)
			}
			read++
		}
		if read != 1100 && read != 1000 {
			t.Errorf("%d entries for the group", read)
		}
	}
	for e, err := range resp.Entries(p.Block(ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 1, "STREAMS", "s", ">")) {
		t.Errorf("%v, %v from a stream that is read", e, err)
	}
}
