package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// server is the server of the lock, with the demo's own view.
type server struct {
	assignment
	name     string // for people
	embedded *miniredis.Miniredis

	pool  *conn.Pool
	locks *lock.Client
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
	cfg, err := conn.ParseURL(s.URL)
	if err != nil {
		return nil, err
	}
	s.name = cfg.String()
	if s.embedded != nil {
		s.name = "miniredis inside the demo"
	}
	if s.pool, err = conn.Open(ctx, cfg); err != nil {
		return nil, err
	}
	if s.locks, err = lock.New(s.pool, lock.Config{Lease: lease}); err != nil {
		return nil, err
	}
	s.lock = s.locks.Reentrant(s.Lock)
	_, err = s.pool.Do(ctx, "SET", s.Counter, 0, "PX", counterLife.Milliseconds())
	return s, err
}

// count reads the counter.
func (s *server) count(ctx context.Context) (int64, error) {
	v, err := s.pool.Do(ctx, "GET", s.Counter)
	if err != nil {
		return 0, err
	}
	return v.Int()
}

// close removes the demo's keys, and ends the demo's own server.
func (s *server) close(ctx context.Context) error {
	_, err := s.pool.Do(ctx, "DEL", s.Lock, s.Counter)
	return errors.Join(err, s.stop())
}

func (s *server) stop() error {
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	if s.pool != nil {
		err = errors.Join(err, s.pool.Close())
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
	return err
}
