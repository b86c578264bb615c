package conn

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/netfail"
)

// dialServer is like dial, but dials the master named by the sentinels if cfg has any.
func dialServer(ctx context.Context, cfg *Config) (*pipeline.Session, error) {
	if cfg.Sentinel.used() {
		return newResolver(cfg, nil).Dial(ctx)
	}
	return dial(ctx, cfg)
}

// newResolver returns a resolver of the master for cfg, which must have its defaults. onSwitch may be nil.
func newResolver(cfg *Config, onSwitch func(from, to string, seq uint64)) *sentinel.Resolver {
	s := &cfg.Sentinel
	return sentinel.New(sentinel.Config{
		Master:       s.Master,
		Addrs:        s.Addrs,
		Timeout:      s.Timeout,
		PollInterval: s.PollInterval,
		PingInterval: cfg.PingInterval,
		Map:          s.mapped,
		Dial: func(ctx context.Context, announced string) (*pipeline.Session, error) {
			return dialRole(ctx, cfg.server(announced), true)
		},
		Ask: func(ctx context.Context, addr string) (sentinel.Stream, error) {
			at := cfg.sentinel(addr)
			s, err := dial(ctx, at)
			if err != nil {
				return nil, err
			}
			return newStream(s, at), nil
		},
		Failure:  func(addr string, err error) error { return &Error{Op: "dial", Addr: addr, Err: err} },
		Final:    func(err error) bool { return classify(err, false) == netfail.Final },
		Warn:     func(text string, args ...any) { warn(cfg, text, args...) },
		OnSwitch: onSwitch,
		Checked: func(begin time.Time, addr string, s *pipeline.Session, err error) {
			cfg.Trace.dial(begin, addr, true, protocol(s), err)
		},
	})
}
