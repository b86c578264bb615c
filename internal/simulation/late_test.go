package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
)

// A script that does something after its last moment is found, and so is a script that refuses before.
func TestLateScripts(t *testing.T) {
	for _, c := range []struct {
		title string
		left  time.Duration
		reply any
		found int
	}{
		{"Reentrant lock, acquire", time.Second, nil, 0},
		{"Reentrant lock, acquire", -time.Second, nil, 1},
		{"Reentrant lock, acquire", -time.Second, int64(5000), 1},
		{"Reentrant lock, acquire", -time.Second, fakeredis.Status("late 1"), 0},
		{"Reentrant lock, acquire", time.Second, fakeredis.Status("late 1"), 1},
		{"Reentrant lock, acquire", -time.Second, fakeredis.Err("OOM"), 0},
		{"Permit semaphore, release", -time.Second, int64(1), 0},
		{"apart: Reentrant lock, acquire", -time.Second, nil, 0},
	} {
		t.Run(fmt.Sprint(c.title, " ", c.left, " ", c.reply), func(t *testing.T) {
			calmWorld(t, &object{name: "o0", family: exclusive}, func(t *testing.T, w *world) {
				last := time.Now().Add(c.left).UnixMilli()
				w.srv.Script("-- late", func(call *fakeredis.Call) any {
					w.judgeLate(c.title, call, c.reply)
					return nil
				})
				pool, err := conn.New(conn.Config{Dial: w.srv.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = pool.Close() }()
				if _, err := pool.Do(t.Context(), "EVAL", "-- late", 1, "o0", 30_000, "client:1", last); err != nil {
					t.Fatal(err)
				}
				if n := len(w.violations); n != c.found {
					t.Errorf("%d violations, want %d: %v", n, c.found, w.violations)
				}
			})
		})
	}
}
