package pubsub_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// burst publishes the numbers from 0 to n-1 in one pipeline.
func burst(t *testing.T, ctx context.Context, cfg conn.Config, channel string, n int) {
	t.Helper()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		t.Error(err)
		return
	}
	defer pool.Close()
	const batch = 10_000
	for first := 0; first < n; first += batch {
		var cmds []resp.Command
		for i := first; i < min(first+batch, n); i++ {
			cmds = append(cmds, resp.Cmd("PUBLISH", channel, strconv.Itoa(i)))
		}
		if _, err := pool.SendBatch(ctx, cmds); err != nil {
			t.Error(err)
			return
		}
	}
}

// A fast consumer receives every message of a burst. A slow consumer beside it learns how many
// messages it lost.
func TestBurstOnServer(t *testing.T) {
	const messages = 100_000
	cfg := pubsub.Config{Timeout: time.Minute} // for a busy machine
	onServers(t, cfg, func(t *testing.T, srv *redistest.Server, s *pubsub.Subscriber, d *tap) {
		attentive, slow := subscribe(t, s, "c"), subscribe(t, s, "c")
		go burst(t, t.Context(), srv.Config(), "c", messages)
		for i := range messages {
			if ev := next(t, attentive); ev.Kind != pubsub.Message || ev.Payload != strconv.Itoa(i) {
				t.Fatalf("event %+v, want message %d", ev, i)
			}
		}
		told := 0
		for last := ""; last != strconv.Itoa(messages-1); {
			switch ev := next(t, slow); ev.Kind {
			case pubsub.Message:
				told, last = told+1, ev.Payload
			case pubsub.Lagged:
				told += ev.N
			}
		}
		if told != messages {
			t.Errorf("the slow consumer was told of %d messages, want %d", told, messages)
		}
	})
}
