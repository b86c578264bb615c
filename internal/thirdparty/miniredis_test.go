package thirdparty

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/conformance"
	"github.com/lockwire/lockwire/resp"
)

// TestMain has several tests run at once: for the most part they wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	m.Run()
}

// TestMiniredis runs the conformance table over miniredis, for a machine without a server.
func TestMiniredis(t *testing.T) {
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			t.Parallel()
			for kind, test := range conformance.Kinds() {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					test(t, func(t *testing.T) conformance.Server {
						s := start(t, proto)
						s.More = func(t *testing.T) []conformance.Server {
							return []conformance.Server{start(t, proto), start(t, proto)}
						}
						return s
					})
				})
			}
		})
	}
}

func start(t *testing.T, proto int) conformance.Server {
	s := miniredis.RunT(t)
	s.ClockTTL(true) // keys age as the clock goes
	cfg := conn.Config{Addr: s.Addr(), Protocol: proto}
	pool, err := conn.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return conformance.Server{Config: cfg, Command: func(t *testing.T, args ...string) string {
		return command(t, pool, args)
	}}
}

func command(t *testing.T, pool *conn.Pool, args []string) string {
	t.Helper()
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg
	}
	v, err := pool.Do(context.WithoutCancel(t.Context()), list...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return text(v)
}

// text is a reply as fmt prints it: [] for an empty array.
func text(v resp.Value) string {
	switch v.Kind() {
	case resp.Array:
		var list []string
		for e := range v.All() {
			list = append(list, text(e))
		}
		slices.Sort(list)
		return fmt.Sprint(list)
	case resp.Integer:
		n, _ := v.Int()
		return fmt.Sprint(n)
	}
	got, _ := v.Text()
	return got
}
