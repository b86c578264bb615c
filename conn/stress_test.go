package conn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// TestTruth sends distinguishable commands under random faults: callers that leave, replies in pieces, a server that
// does not read, lost connections. Every error must tell the truth.
func TestTruth(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fakeredis.New()
				defer srv.Close()
				s := &stress{t: t, srv: srv, rnd: rand.New(rand.NewPCG(seed, 2)), outcome: map[string]string{}}
				s.run()
			})
		})
	}
}

type stress struct {
	t   *testing.T
	srv *fakeredis.Server
	rnd *rand.Rand
	p   *conn.Pool
	wg  sync.WaitGroup

	mu      sync.Mutex
	outcome map[string]string // by command: "answered", "not sent" or "uncertain"
}

func (s *stress) run() {
	s.srv.Buffer(2 << 10)
	s.p = openPool(s.t, conn.Config{Dial: s.srv.Dial, Conns: 2, Timeout: time.Second, MaxAge: 2 * time.Second})
	s.srv.ClearLog()
	for i := range 400 {
		patience := time.Duration(s.rnd.ExpFloat64() * float64(20*time.Millisecond))
		padding := strings.Repeat("x", s.rnd.IntN(10)*s.rnd.IntN(200))
		switch s.rnd.IntN(5) {
		case 0:
			s.wg.Go(func() { s.batch(i, patience, padding) })
		case 1:
			s.wg.Go(func() { s.one(i, time.Hour, padding) })
		default:
			s.wg.Go(func() { s.one(i, patience, padding) })
		}
		s.disturb()
		time.Sleep(time.Duration(s.rnd.IntN(4)) * time.Millisecond)
	}
	s.srv.Stall(false)
	s.wg.Wait()
	s.p.Close()
	s.check()
}

// disturb causes a random fault now and then.
func (s *stress) disturb() {
	switch s.rnd.IntN(60) {
	case 0, 1:
		s.srv.Stall(true)
	case 2, 3, 4, 5:
		s.srv.Stall(false)
	case 6:
		s.srv.KillConns(nil)
	case 7:
		s.srv.ResetConns(nil)
	case 8:
		s.srv.SplitReplies(3, time.Microsecond)
	case 9:
		s.srv.SplitReplies(0, 0)
	case 10:
		s.srv.Latency(time.Duration(s.rnd.IntN(10)) * time.Millisecond)
	}
}

func (s *stress) one(i int, patience time.Duration, padding string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id := fmt.Sprint(i)
	v, err := s.p.Do(ctx, "ECHO", id+padding)
	s.note(id, padding, v, err)
}

func (s *stress) batch(i int, patience time.Duration, padding string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var cmds []resp.Command
	var ids []string
	for j := range 4 {
		ids = append(ids, fmt.Sprint(i, ".", j))
		cmds = append(cmds, resp.Cmd("ECHO", ids[j]+padding))
	}
	values, err := s.p.SendBatch(ctx, cmds)
	for j, v := range values {
		s.note(ids[j], padding, v, nil)
	}
	for _, id := range ids[len(values):] {
		s.note(id, padding, resp.Value{}, err)
	}
}

func (s *stress) note(id, padding string, v resp.Value, err error) {
	outcome := "answered"
	switch {
	case conn.SafeToRetry(err):
		outcome = "not sent"
	case err != nil:
		wantUncertain(s.t, err, conn.ErrUncertain)
		outcome = "uncertain"
	default:
		if got, err := v.Text(); err != nil || got != id+padding {
			s.t.Errorf("ECHO %s = %.20q, %v", id, got, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[id] = outcome
}

// check compares the callers' outcomes with the commands received by the server.
func (s *stress) check() {
	seen := map[string]int{}
	for _, cmd := range s.srv.Log() {
		if cmd.Name == "ECHO" {
			seen[strings.TrimRight(cmd.Args[1], "x")]++
		}
	}
	total := map[string]int{}
	for id, outcome := range s.outcome {
		total[outcome]++
		n := seen[id]
		if n > 1 || n == 0 && outcome == "answered" || n == 1 && outcome == "not sent" {
			s.t.Errorf("ECHO %s is %s, and the server saw it %d times", id, outcome, n)
		}
	}
	if total["answered"] == 0 || total["uncertain"] == 0 || total["not sent"] == 0 {
		s.t.Errorf("outcomes %v, want some of each", total)
	}
}
