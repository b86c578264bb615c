package pubsub

import (
	"cmp"
	"math"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Config configures a Subscriber. The zero Config is ready to use. The Dialer decides the address
// and the credentials.
type Config struct {
	// PingInterval is the time without a reply after which the Subscriber sends a PING. Messages do
	// not count as replies, because they do not show that the server still receives. 0 means 5 s.
	// Below 0 the Subscriber sends no PING, and only the network reports a lost connection.
	PingInterval time.Duration

	// Timeout limits the wait for a PONG, and each write, before the Subscriber gives up the
	// connection. 0 means 5 s; below 0 means no limit.
	Timeout time.Duration

	// IdleTimeout is the time after which a connection without subscriptions is closed and its two
	// goroutines end. 0 means 1 minute; below 0 the connection stays until Close.
	IdleTimeout time.Duration

	// QueueBytes limits the events that a Subscription holds for its consumer. An event counts its
	// payload, channel name and pattern, plus 100 bytes, even if Subscriptions share the payload.
	//
	// Above the limit the Subscription drops the oldest events until an eighth of the queue is
	// free, and reports Lagged. It keeps the newest event even if the event alone exceeds the
	// limit. Memory is allocated as needed and released. 0 means 16 MiB; below 0 means no limit.
	QueueBytes int

	// MinBackoff and MaxBackoff bound the pause before the Subscriber dials again. The pause begins
	// at MinBackoff and doubles with each failure, up to MaxBackoff; a connection that lasts for
	// MaxBackoff resets it. Each pause is randomly shortened by up to half. 0 and below mean 8 ms
	// and 1 s.
	MinBackoff, MaxBackoff time.Duration

	// Logger receives a line when the connection is lost, when a first dial fails, and when the
	// server answers again. Further failures before an answer have no lines. No line contains a
	// channel or a payload. Nil logs nothing.
	Logger conn.Logger
}

func (cfg Config) withDefaults() Config {
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 5*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, time.Minute)
	cfg.MinBackoff = cmp.Or(max(cfg.MinBackoff, 0), 8*time.Millisecond)
	cfg.MaxBackoff = max(cmp.Or(max(cfg.MaxBackoff, 0), time.Second), cfg.MinBackoff)
	switch {
	case cfg.QueueBytes == 0:
		cfg.QueueBytes = 16 << 20
	case cfg.QueueBytes < 0:
		cfg.QueueBytes = math.MaxInt
	}
	return cfg
}
