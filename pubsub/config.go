package pubsub

import (
	"cmp"
	"math"
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

	// QueueBytes is how much a Subscription holds for its consumer: each event counts with its payload, its channel's
	// name, its pattern and 100 bytes more, also where Subscriptions share the payload. Beyond that the oldest events
	// are dropped, an eighth of QueueBytes at once, and the consumer is told by Lagged. The newest event is kept
	// however large it is. Memory is taken when it is needed and given back. 0 is 16 MiB; below 0 drops nothing.
	QueueBytes int

	// MinBackoff and MaxBackoff bound the pause before the Subscriber dials again: the first is MinBackoff, doubled
	// each time until a connection has lasted for MaxBackoff, and each is cut short by up to a half at random. 0 and
	// below are 8 ms and 1 s.
	MinBackoff, MaxBackoff time.Duration

	// Logger, if set, is told when the connection is lost and when there is one again. No channel and no
	// payload is logged. Nil is silent.
	Logger conn.Logger
}

func (cfg Config) withDefaults() Config {
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 5*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, time.Minute)
	cfg.MinBackoff = max(cfg.MinBackoff, 0)
	cfg.MaxBackoff = max(cfg.MaxBackoff, 0)
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, 8*time.Millisecond)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, time.Second)
	cfg.MaxBackoff = max(cfg.MaxBackoff, cfg.MinBackoff)
	switch {
	case cfg.QueueBytes == 0:
		cfg.QueueBytes = 16 << 20
	case cfg.QueueBytes < 0:
		cfg.QueueBytes = math.MaxInt
	}
	return cfg
}
