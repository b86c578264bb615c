package pubsub

import (
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Config says how a Subscriber treats its connection and its consumers. The zero Config is ready. Where it is dialled, and
// with which credentials, is up to the Dialer.
type Config struct {
	// PingInterval is how long the server may leave everything sent to it without an answer, or have nothing to
	// answer, before it is asked for a PONG. Messages do not count: they say nothing about the way to the server.
	// 0 is 5 s; below 0 never asks, so that only the network tells when the connection is lost.
	PingInterval time.Duration

	// Timeout is how long a PONG may take, and a write, before the connection is given up. 0 is 5 s; below 0 is for
	// ever.
	Timeout time.Duration

	// IdleTimeout is how long the connection is kept, and its two goroutines with it, when no subscription is left.
	// 0 is 1 minute; below 0 is until Close.
	IdleTimeout time.Duration

	// Queue is how many events a Subscription holds for its consumer. Its memory, some 80 bytes each, is taken when
	// the Subscription is made. When it is full the oldest eighth of them is dropped, or one if there are fewer than
	// eight. 0 and below are 64.
	Queue int

	// MinBackoff and MaxBackoff bound the pause before the Subscriber dials again: the first is MinBackoff, doubled
	// each time until a connection has lasted for MaxBackoff, and each is cut short by up to a half at random. 0 and
	// below are 8 ms and 1 s.
	MinBackoff, MaxBackoff time.Duration

	// Logger, if set, is told when the connection is lost and when there is one again. No channel and no
	// payload is logged. Nil is silent.
	Logger conn.Logger
}

func (cfg Config) withDefaults() Config {
	orDefault(&cfg.PingInterval, 5*time.Second)
	orDefault(&cfg.Timeout, 5*time.Second)
	orDefault(&cfg.IdleTimeout, time.Minute)
	cfg.MinBackoff = max(cfg.MinBackoff, 0)
	cfg.MaxBackoff = max(cfg.MaxBackoff, 0)
	orDefault(&cfg.MinBackoff, 8*time.Millisecond)
	orDefault(&cfg.MaxBackoff, time.Second)
	cfg.MaxBackoff = max(cfg.MaxBackoff, cfg.MinBackoff)
	if cfg.Queue <= 0 {
		cfg.Queue = 64
	}
	return cfg
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// backoff returns the pause before attempt n, counted from 1.
func backoff(n int, shortest, longest time.Duration) time.Duration {
	d := longest
	if n < 32 && shortest <= longest>>(n-1) {
		d = shortest << (n - 1)
	}
	return d - rand.N(d/2+1)
}
