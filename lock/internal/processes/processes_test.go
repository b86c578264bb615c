package processes

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

func TestDefaultName(t *testing.T) {
	host, _ := os.Hostname()
	long := strings.Repeat("x", maxName)
	for pod, want := range map[string]string{"": fmt.Sprintf("%s-%d", host, os.Getpid()), "web 7,é": "web-7--", "cut-" + long: long} {
		t.Setenv("POD_NAME", pod)
		if got := DefaultName(); got != want {
			t.Errorf("with POD_NAME=%s DefaultName() = %q, want %q", pod, got, want)
		}
	}
}

func TestConnected(t *testing.T) {
	got := slices.Collect(Connected("id=3 addr=10.0.0.7:4711 laddr=10.0.0.1:6379 name=web-1:a,admin,web-1:b age=90 db=0\nid=4 name= age=1\n"))
	want := []Process{{"a", "web-1", "10.0.0.7:4711", 90 * time.Second}, {"b", "web-1", "10.0.0.7:4711", 90 * time.Second}}
	if !slices.Equal(got, want) {
		t.Errorf("Connected() = %v, want %v", got, want)
	}
}

// listing is a server with some connections.
type listing struct {
	*conn.Pool
	connected int
	list      string
	refuses   bool // to list its connections
	asked     int
}

func newListing(t *testing.T) *listing {
	t.Helper()
	s, srv := &listing{connected: 1}, fakeredis.New()
	text := func(text string) fakeredis.Action {
		return fakeredis.Reply(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		switch {
		case cmd.Args[0] == "INFO":
			s.asked++
			return text(fmt.Sprintf("# Clients\r\nconnected_clients:%d\r\n", s.connected))
		case cmd.Args[0] == "CLIENT" && cmd.Args[1] == "LIST" && s.refuses:
			return fakeredis.Reply("-NOPERM no\r\n")
		case cmd.Args[0] == "CLIENT" && cmd.Args[1] == "LIST":
			return text(s.list)
		}
		return fakeredis.Run()
	})
	pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial})
	if err != nil {
		t.Fatal(err)
	}
	s.Pool = pool
	return s
}

func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListing(t)
		defer s.Close()
		s.connected, s.list = mostConnections, "id=1 name=web-1:a\nid=2 name=\nid=3 name=web-2:b,admin\n"
		var names Names
		want := func(id, process string, asked int) {
			t.Helper()
			if got := names.Of(t.Context(), s, "job", id); got != process || s.asked != asked {
				t.Errorf("Of(%s) = %q after %d questions, want %q after %d", id, got, s.asked, process, asked)
			}
		}
		want("a", "web-1", 1)
		want("b", "web-2", 1)
		want("c", "", 1) // the next question is a minute later
		s.list = "id=4 name=web-3:c\n"
		time.Sleep(namesEvery)
		want("c", "web-3", 2)
		want("a", "web-1", 2) // remembered
		s.connected++         // so many connections that the list would hold up the server
		s.list = "id=5 name=web-4:d\n"
		time.Sleep(namesEvery)
		want("d", "", 3)
		s.connected, s.refuses = 1, true
		time.Sleep(namesEvery)
		want("d", "", 4)
		s.refuses = false
		time.Sleep(namesEvery)
		want("d", "", 4) // refused for good
	})
}

func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := Names{known: make(map[string]string)}
		for i := range mostNames {
			names.known[fmt.Sprint("old", i)] = "gone"
		}
		s := newListing(t)
		defer s.Close()
		s.list = "id=1 name=web-1:a\n"
		if got := names.Of(t.Context(), s, "job", "a"); got != "web-1" {
			t.Errorf("Of() = %q", got)
		}
		if want := map[string]string{"a": "web-1"}; !maps.Equal(names.known, want) {
			t.Errorf("%d names are remembered, want 1", len(names.known))
		}
	})
}
