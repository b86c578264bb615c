package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// server is the server of the lock, with the demo's own view.
type server struct {
	assignment
	name     string // for people
	embedded *miniredis.Miniredis

	locks *lockwire.Client
	lock  *lock.Reentrant
}

// openServer connects to the server at url, or starts a server if url is "", and sets the counter to 0.
func openServer(ctx context.Context, url string, lease time.Duration) (_ *server, err error) {
	name := "lockwire-demo:{" + strings.ToLower(rand.Text()[:8]) + "}"
	s := &server{assignment: assignment{URL: url, Lock: name, Counter: name + ":counter", Lease: lease}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if url == "" {
		s.embedded = miniredis.NewMiniRedis()
		if err := s.embedded.Start(); err != nil {
			return nil, fmt.Errorf("starting miniredis: %w", err)
		}
		s.embedded.ClockTTL(true) // without a tick, keys live for ever
		s.URL = "redis://" + s.embedded.Addr()
	}
	if cfg, err := conn.ParseURL(s.URL); s.embedded != nil {
		s.name = "miniredis inside the demo"
	} else if s.name = "a cluster"; err == nil {
		s.name = cfg.String()
	}
	if s.locks, err = lockwire.Open(ctx, s.URL, lockwire.Config{Lock: lock.Config{Lease: lease}}); err != nil {
		return nil, err
	}
	s.lock = s.locks.Reentrant(s.Lock)
	_, err = s.locks.Server().Send(ctx, resp.Cmd("SET", s.Counter, 0, "PX", counterLife.Milliseconds()))
	return s, err
}

// count reads the counter.
func (s *server) count(ctx context.Context) (int64, error) {
	return resp.As[int64](s.locks.Server().Send(ctx, resp.Cmd("GET", s.Counter)))
}

// close removes the demo's keys, and ends the demo's own server.
func (s *server) close(ctx context.Context) error {
	_, err := s.locks.Server().Send(ctx, resp.Cmd("DEL", s.Lock, s.Counter))
	return errors.Join(err, s.stop())
}

func (s *server) stop() error {
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
	return err
}
