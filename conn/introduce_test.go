package conn_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// All connections of a pool have the names: those already open at once, and those dialed later.
func TestIntroduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		pool, err := conn.Open(t.Context(), conn.Config{ClientName: "orders", Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		want := func(name string) {
			t.Helper()
			synctest.Wait()
			for _, c := range srv.Conns() {
				if c.Name != name {
					t.Errorf("a connection is named %q, want %q", c.Name, name)
				}
			}
		}
		for _, bad := range []string{"", "a b", "a,b", "\n"} {
			defer pool.Introduce(bad)()
		}
		first, second := pool.Introduce("a"), pool.Introduce("b")
		want("orders,a,b")
		err = pool.With(t.Context(), func(*conn.Conn) error {
			want("orders,a,b")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		srv.KillConns(nil)
		if _, err := pool.Send(t.Context(), resp.Cmd("PING")); err != nil {
			t.Fatal(err)
		}
		want("orders,a,b")
		first()
		first()
		want("orders,b")
		second()
		want("orders")
		var all []string
		for i := range 20 {
			pool.Introduce(fmt.Sprint(i))
			all = append(all, fmt.Sprint(i))
		}
		want("orders," + strings.Join(all[:16], ","))
	})
}

// A Pool without an identity has no names either.
func TestIntroduceWithoutIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		pool := openPool(t, conn.Config{NoIdentity: true, Dial: srv.Dial})
		defer pool.Close()
		defer pool.Introduce("a")()
		if _, err := pool.Send(t.Context(), resp.Cmd("PING")); err != nil {
			t.Fatal(err)
		}
		for _, c := range srv.Conns() {
			if c.Name != "" {
				t.Errorf("a connection is named %q", c.Name)
			}
		}
	})
}

// A pipeline under way is not disturbed by a change of the name.
func TestIntroduceAmongCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fakeredis.New()
		defer srv.Close()
		pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		done := make(chan error)
		for i := range 20 {
			go func() {
				text := fmt.Sprint(i)
				v, err := pool.Send(t.Context(), resp.Cmd("ECHO", text))
				if got, _ := v.Text(); err == nil && got != text {
					err = fmt.Errorf("ECHO %s = %s", text, got)
				}
				done <- err
			}()
			defer pool.Introduce(fmt.Sprint("name", i))()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
