package simulation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// lineServer is a server whose scripts are only what the judge of a line sees of them.
type lineServer struct {
	t    *testing.T
	o    object
	srv  *fakeredis.Server
	pool *conn.Pool
	n    int
}

// runLine runs test in virtual time.
func runLine(t *testing.T, test func(s *lineServer)) {
	synctest.Test(t, func(t *testing.T) {
		s := &lineServer{t: t, srv: fakeredis.New()}
		defer s.srv.Close()
		pool, err := conn.New(conn.Config{Dial: s.srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		s.pool = pool
		test(s)
	})
}

// in runs a function as a script about a place.
func (s *lineServer) in(place string, run func(c *fakeredis.Call)) {
	s.t.Helper()
	s.n++
	source := fmt.Sprint("-- ", s.n)
	s.srv.Script(source, func(c *fakeredis.Call) any { run(c); return nil })
	if _, err := s.pool.Send(context.Background(), resp.Cmd("EVAL", source, 1, "line", place, "join")); err != nil {
		s.t.Fatal(err)
	}
}

// stands has a place stand in the server's line with a score, unseen.
func (s *lineServer) stands(place string, score int64) {
	s.t.Helper()
	s.in(place, func(c *fakeredis.Call) { c.Do("ZADD", "line", strconv.FormatInt(score, 10), place) })
}

// asks has a place ask and be refused.
func (s *lineServer) asks(place string) {
	s.t.Helper()
	s.in(place, func(c *fakeredis.Call) { s.o.lined("Write lock, acquire", c, int64(1)) })
}

// read has readers of so many processes have the lock, who have come last.
func (s *lineServer) read(readers int) {
	s.t.Helper()
	for range readers {
		place := lineMember(100+s.n, ":r")
		s.in(place, func(c *fakeredis.Call) { s.o.lined("Read lock, acquire", c, nil) })
	}
}

// lineMember is the place of a process.
func lineMember(n int, half string) string {
	return fmt.Sprintf("%08x-0000-0000-0000-000000000000%s:1:100", n, half)
}

func (s *lineServer) wantPasses(place string, want int) {
	s.t.Helper()
	if got := s.o.line.places[place].passes; got != want {
		s.t.Errorf("%s was passed %d times, want %d", place, got, want)
	}
}

// While the writer at the head lets readers in, they pass those behind it too, however short a time these have waited.
func TestLinePassedWhileTheHeadLetsReadersIn(t *testing.T) {
	runLine(t, func(s *lineServer) {
		head, behind := lineMember(1, ""), lineMember(2, "")
		s.stands(head, time.Now().UnixMilli())
		s.asks(head)
		time.Sleep(2 * time.Second)
		s.stands(behind, time.Now().UnixMicro())
		s.asks(behind)
		for _, step := range []struct {
			after time.Duration // since the head has become next
			want  int
		}{
			{2900 * time.Millisecond, 3}, {3 * time.Second, 3}, {4990 * time.Millisecond, 3},
			{5 * time.Second, 6}, {10900 * time.Millisecond, 9}, {11 * time.Second, 9},
		} {
			time.Sleep(step.after - time.Since(s.o.line.places[head].since))
			s.read(3)
			s.wantPasses(head, step.want)
			s.wantPasses(behind, step.want)
		}
	})
}

// Of places that have come unseen the server's line tells who has come first.
func TestLineSeenLate(t *testing.T) {
	runLine(t, func(s *lineServer) {
		early, writer, late := lineMember(1, ":r"), lineMember(2, ""), lineMember(3, ":r")
		first := lineMember(4, ":w")
		came := time.Now()
		for i, place := range []string{early, writer, late} {
			s.stands(place, came.Add(time.Duration(i)*time.Second).UnixMicro())
		}
		s.stands(first, came.Add(-inFront).UnixMicro())
		time.Sleep(10 * time.Second)
		for _, place := range []string{late, writer, early, first} {
			s.asks(place)
		}
		if got := s.o.line.places[first].since; !got.Equal(came) {
			t.Errorf("a writer that stands before all readers has come at %v, want %v", got, came)
		}
		for i, place := range []string{early, late} {
			s.in(place, func(c *fakeredis.Call) { s.o.lined("Read lock, acquire", c, nil) })
			s.wantPasses(writer, i)
		}
	})
}

// A turn is a client's: who asks from another place of the client ends it, and the place that was called comes to the line anew.
func TestLineTurnSpentByTheSameClient(t *testing.T) {
	runLine(t, func(s *lineServer) {
		called, other := lineMember(1, ""), strings.Replace(lineMember(1, ""), ":1:", ":2:", 1)
		came := time.Now()
		for _, place := range []string{other, called} {
			s.stands(place, came.UnixMicro())
			s.asks(place)
		}
		time.Sleep(time.Second)
		s.in(other, func(c *fakeredis.Call) {
			c.Do("ZREM", "line", called)
			s.o.lined("Write lock, acquire", c, int64(1))
		})
		s.stands(called, time.Now().UnixMicro())
		s.asks(called)
		for place, want := range map[string]time.Time{other: came, called: came.Add(time.Second)} {
			if got := s.o.line.places[place].since; !got.Equal(want) {
				t.Errorf("%s stands in the line since %v, want %v", place, got, want)
			}
		}
	})
}

// A place ends when its client does not listen as the lock is freed, for instance because its connection has just been killed: it then
// comes to the line anew, behind those who listened.
func TestLinePlaceWithoutListener(t *testing.T) {
	for _, half := range []string{"", ":r"} {
		runLine(t, func(s *lineServer) {
			deaf, writer := lineMember(1, half), lineMember(2, "")
			for _, place := range []string{deaf, writer} {
				s.stands(place, time.Now().UnixMicro())
				s.asks(place)
				time.Sleep(time.Second)
			}
			s.in(lineMember(3, ""), func(c *fakeredis.Call) {
				c.Do("ZREM", "line", deaf)
				s.o.lined("Write lock, release", c, int64(1))
			})
			came := time.Now()
			s.stands(deaf, came.UnixMicro())
			s.asks(deaf)
			s.in(writer, func(c *fakeredis.Call) { s.o.lined("Write lock, acquire", c, nil) })
			s.wantPasses(deaf, 0)
			if got := s.o.line.places[deaf].since; !got.Equal(came) {
				t.Errorf("%s stands in the line since %v, want %v", deaf, got, came)
			}
		})
	}
}
