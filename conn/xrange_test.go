package conn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// XRange begins each page behind the last entry of the page before.
func TestXRangePages(t *testing.T) {
	page := func(from, n int, last string) string {
		text := fmt.Sprintf("*%d\r\n", n)
		for i := range n {
			id := fmt.Sprintf("%d-0", from+i)
			if i == n-1 && last != "" {
				id = last
			}
			text += "*2\r\n+" + id + "\r\n*2\r\n+f\r\n:" + fmt.Sprint(from+i) + "\r\n"
		}
		return text
	}
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		pages := map[string]string{
			"-":      page(1, 1000, "1000-7"),
			"1000-8": page(1001, 1000, "2000-18446744073709551615"),
			"2001-0": page(2001, 1, ""),
		}
		var asked []string
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name != "XRANGE" {
				return fakeredis.Run()
			}
			asked = append(asked, cmd.Args[2])
			if cmd.Args[1] == "broken" && len(asked) > 1 {
				return fakeredis.Reply("-ERR gone\r\n")
			}
			return fakeredis.Reply(pages[cmd.Args[2]])
		})
		n := 0
		for e, err := range conn.XRange(t.Context(), p, "s", "-", "+") {
			if n++; err != nil || e.Get("f") != fmt.Sprint(n) {
				t.Fatalf("entry %d is %v, %v", n, e, err)
			}
		}
		if want := []string{"-", "1000-8", "2001-0"}; n != 2001 || !slices.Equal(asked, want) {
			t.Errorf("%d entries, asked from %q, want %q", n, asked, want)
		}
		n, asked = 0, nil
		var failed error
		for _, err := range conn.XRange(t.Context(), p, "broken", "-", "+") {
			n++
			failed = err
		}
		if n != 1001 || failed == nil {
			t.Errorf("%d steps, the last with %v, want 1000 and the error", n, failed)
		}
		asked = nil
		for range conn.XRange(t.Context(), p, "s", "-", "+") {
			break
		}
		if len(asked) != 1 {
			t.Errorf("a loop that ends with the first entry asks %d times", len(asked))
		}
	})
}

// Behind the greatest ID there is no other: XRange does not begin again.
func TestXRangeToTheLastID(t *testing.T) {
	const last = "18446744073709551615-18446744073709551615"
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name != "XRANGE" {
				return fakeredis.Run()
			}
			return fakeredis.Reply("*1000\r\n" + strings.Repeat("*2\r\n+1-0\r\n*2\r\n+f\r\n+v\r\n", 999) + "*2\r\n+" + last + "\r\n*2\r\n+f\r\n+v\r\n")
		})
		n := 0
		for _, err := range conn.XRange(t.Context(), p, "s", "-", "+") {
			if n++; err != nil || n > 1000 {
				t.Fatalf("step %d: %v", n, err)
			}
		}
		if n != 1000 || srv.Count("XRANGE") != 1 {
			t.Errorf("%d entries by %d XRANGE", n, srv.Count("XRANGE"))
		}
	})
}
