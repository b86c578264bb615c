package pipeline_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// each makes a server take the given time for each command of a name.
func each(name string, d time.Duration) func(fakeredis.Cmd) fakeredis.Action {
	return func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == name {
			return fakeredis.Delay(d, fakeredis.Run())
		}
		return fakeredis.Run()
	}
}

// batchOf returns n commands.
func batchOf(n int) []resp.Command {
	batch := make([]resp.Command, n)
	for i := range batch {
		batch[i] = resp.Cmd("ECHO", i)
	}
	return batch
}

// TestBatchThatFlows: batches take far longer than Timeout, also with other callers' commands behind them. The
// connection stays open while replies keep arriving.
func TestBatchThatFlows(t *testing.T) {
	for _, pause := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond} {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := open(t, srv, shared(limits(time.Second)))
			defer l.close()
			srv.Intercept(each("ECHO", pause))
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					values, err := l.SendBatch(t.Context(), batchOf(100))
					if err != nil || len(values) != 100 {
						t.Errorf("%d replies, %v; want 100", len(values), err)
					}
				})
				wg.Go(func() { want(t, l, "null", "GET", fmt.Sprint(i)) })
			}
			wg.Wait()
			if err := l.Err(); err != nil {
				t.Errorf("the link failed: %v (a reply every %v)", err, pause)
			}
		})
	}
}

// TestBatchThatStops: the replies to a batch stop half way. The time limit counts from the last reply.
func TestBatchThatStops(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(time.Second)))
		defer l.close()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "ECHO" && cmd.N > 50 {
				return fakeredis.Swallow()
			}
			return fakeredis.Delay(100*time.Millisecond, fakeredis.Run())
		})
		start := time.Now()
		values, err := l.SendBatch(t.Context(), batchOf(100))
		wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
		if len(values) != 50 {
			t.Errorf("%d replies, want 50", len(values))
		}
		between(t, "the connection failed", time.Since(start), 6*time.Second, 6200*time.Millisecond)
	})
}

// TestLargeReplyThatFlows: one reply takes far longer than Timeout to arrive in pieces, also for a caller that has
// left.
func TestLargeReplyThatFlows(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(time.Second)))
		defer l.close()
		srv.Do("SET", "big", strings.Repeat("x", 1<<20))
		srv.SplitReplies(8<<10, 300*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.Do(ctx, "GET", "big")
		wantFailure(t, err, errSent, context.DeadlineExceeded)
		v, err := l.Do(t.Context(), "GET", "big")
		if s, _ := v.Text(); err != nil || len(s) != 1<<20 {
			t.Errorf("GET = %d bytes, %v", len(s), err)
		}
	})
}

// TestTricklesAreSilence: some bytes are no progress: a byte of a reply now and then, and small and large pushes from
// a server without answers.
func TestTricklesAreSilence(t *testing.T) {
	big := ">2\r\n+x\r\n$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n"
	for name, pieces := range map[string][]string{
		"bytes":      strings.Split("$100000\r\n"+strings.Repeat("x", 100_000), ""),
		"pieces":     {"$100000\r\n", strings.Repeat("x", 700), strings.Repeat("x", 700), strings.Repeat("x", 700)},
		"pushes":     {">1\r\n+x\r\n"},
		"big pushes": {big},
		"attributes": {"|1\r\n+a\r\n+b\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				l := open(t, srv, shared(limits(time.Second)))
				defer l.close()
				srv.Mute(true)
				id := srv.Conns()[0].ID
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer stop()
				wg.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						time.Sleep(50 * time.Millisecond)
						srv.Push(id, pieces[i%len(pieces)])
					}
				})
				start := time.Now()
				_, err := l.Do(t.Context(), "GET", "key")
				wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
				between(t, "the connection failed", time.Since(start), time.Second, 1200*time.Millisecond)
			})
		})
	}
}

// TestMuteServer: a server falls silent under load, while the callers have very late deadlines. The connection fails
// within Timeout plus PingInterval, like an idle connection.
func TestMuteServer(t *testing.T) {
	for _, limits := range [][2]time.Duration{
		{time.Second, time.Second}, {5 * time.Second, 5 * time.Second}, {time.Second, 100 * time.Millisecond}, {100 * time.Millisecond, 2 * time.Second},
	} {
		for _, pause := range []time.Duration{0, limits[1] / 7, 3 * limits[1]} { // pause between calls; 0 for none
			for _, batch := range []int{0, 10} {
				name := fmt.Sprintf("Timeout=%v, PingInterval=%v, pause=%v, batch=%d", limits[0], limits[1], pause, batch)
				bubble(t, func(t *testing.T, srv *fakeredis.Server) {
					l := open(t, srv, pipeline.Config{Timeout: limits[0], PingInterval: limits[1], Shared: true})
					defer l.close()
					srv.Latency(10 * time.Millisecond)
					ctx, stop := context.WithTimeout(t.Context(), 24*time.Hour)
					var wg sync.WaitGroup
					defer wg.Wait()
					defer stop()
					for range 5 {
						wg.Go(func() {
							for ctx.Err() == nil && !l.Failed() {
								if batch > 0 {
									l.SendBatch(ctx, batchOf(batch))
								} else {
									l.Do(ctx, "GET", "key")
								}
								if sleep := pause; sleep > 0 {
									time.Sleep(sleep)
								}
							}
						})
					}
					time.Sleep(4*limits[1] + limits[0]/3)
					start := time.Now()
					srv.Mute(true)
					if pause > 0 {
						time.Sleep(pause / 3)
						wg.Go(func() { l.Do(ctx, "GET", "late") })
					}
					for !l.Failed() && time.Since(start) < time.Hour {
						time.Sleep(time.Millisecond)
					}
					between(t, name+": noticed", time.Since(start), limits[0]*9/10, limits[0]+max(limits[1], limits[0]/4))
					srv.Mute(false)
					srv.KillConns(nil)
				})
			}
		}
	}
}

// TestSlowNeighbour: a slow command with a late deadline shares its connection with commands without a deadline, sent
// before and after it. They do not shorten its time.
func TestSlowNeighbour(t *testing.T) {
	for _, neighbours := range []bool{false, true} {
		for slow, ends := range map[time.Duration]bool{3 * time.Second: true, 5500 * time.Millisecond: true, 8 * time.Second: false} {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				l := open(t, srv, pipeline.Config{Timeout: time.Second, PingInterval: 5 * time.Second, Shared: true})
				defer l.close()
				srv.Intercept(each("ECHO", slow))
				var wg sync.WaitGroup
				neighbour := func() {
					if !neighbours {
						return
					}
					wg.Go(func() {
						if _, err := l.Do(t.Context(), "GET", "key"); err == nil != ends {
							t.Errorf("GET beside a command of %v = %v", slow, err)
						}
					})
					synctest.Wait()
				}
				srv.Latency(100 * time.Millisecond)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					start := time.Now()
					_, err := l.Do(ctx, "ECHO", 1)
					if err == nil != ends {
						t.Errorf("a command of %v = %v (neighbours: %v)", slow, err, neighbours)
					}
					if err != nil {
						wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
						between(t, "given up", time.Since(start), 5500*time.Millisecond, 6*time.Second)
					}
				})
				synctest.Wait()
				neighbour()
				time.Sleep(900 * time.Millisecond)
				neighbour()
				wg.Wait()
			})
		}
	}
}

// TestDeadlineBehindOthers: a command with a late deadline waits behind a command without a deadline.
func TestDeadlineBehindOthers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(time.Second)))
		defer l.close()
		srv.Intercept(each("GET", 3*time.Second))
		var wg sync.WaitGroup
		wg.Go(func() { want(t, l, "null", "GET", "key") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		echo(t, ctx, l, 1)
		wg.Wait()
	})
}

// slowWriter is a connection with a slow Write.
type slowWriter struct {
	net.Conn
	pause time.Duration
}

func (w slowWriter) Write(b []byte) (int, error) {
	if len(b) > 100<<10 {
		time.Sleep(w.pause * time.Duration(len(b)) / (256 << 10))
	}
	return w.Conn.Write(b)
}

// TestLargeCommandThatFlows: a command takes far longer than Timeout to be written, also behind another command.
// After the write the answer is due within Timeout.
func TestLargeCommandThatFlows(t *testing.T) {
	for _, behind := range []bool{false, true} {
		for _, mute := range []bool{false, true} {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				srv.Buffer(0)
				nc, err := srv.Dial(t.Context(), "tcp", "server:6379")
				if err != nil {
					t.Fatal(err)
				}
				l := openOver(slowWriter{nc, 400 * time.Millisecond}, pipeline.Config{Timeout: time.Second, PingInterval: time.Second, Shared: true})
				defer l.close()
				srv.Intercept(each("GET", 700*time.Millisecond))
				var wg sync.WaitGroup
				defer wg.Wait()
				if behind {
					wg.Go(func() { want(t, l, "null", "GET", "key") })
					synctest.Wait()
				}
				if mute {
					srv.Intercept(onName("SET", 1, fakeredis.Swallow()))
				}
				start := time.Now()
				_, err = l.Do(t.Context(), "SET", "big", strings.Repeat("x", 4<<20))
				if !mute && err != nil {
					t.Errorf("SET = %v", err)
				}
				if mute {
					wantFailure(t, err, errSent, os.ErrDeadlineExceeded)
					between(t, "given up", time.Since(start), 7*time.Second, 8500*time.Millisecond)
				}
			})
		}
	}
}
