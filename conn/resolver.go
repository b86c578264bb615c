package conn

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
)

// dialServer is like dial, but dials the master named by the sentinels if cfg has any.
func dialServer(ctx context.Context, cfg *Config) (*pipeline.Session, error) {
	if cfg.Sentinel.used() {
		return newResolver(cfg, nil, nil).Dial(ctx)
	}
	return dial(ctx, cfg, false)
}

// newResolver returns a resolver of the master for cfg, which must have its defaults. start is sentinel.Config.Go, and
// onSwitch is OnSwitch; both may be nil for a resolver that only dials.
func newResolver(cfg *Config, onSwitch func(from, to string, seq uint64), start func(run func(ctx context.Context)) error) *sentinel.Resolver {
	s := &cfg.Sentinel
	return sentinel.New(sentinel.Config{
		Master:       s.Master,
		Addrs:        s.Addrs,
		Timeout:      s.Timeout,
		PollInterval: s.PollInterval,
		PingInterval: cfg.PingInterval,
		Map:          s.NodeMap,
		Dial: func(ctx context.Context, announced string) (*pipeline.Session, error) {
			return dial(ctx, cfg.serverConfig(announced), true)
		},
		Ask: func(ctx context.Context, announced, addr string) (sentinel.Stream, error) {
			at := cfg.sentinelConfig(announced, addr)
			s, err := dial(ctx, at, false)
			if err != nil {
				return nil, err
			}
			return newStream(s, at), nil
		},
		Failure:  func(addr string, err error) error { return &Error{Op: "dial", Addr: addr, Err: err} },
		Go:       start,
		Warn:     func(text string, args ...any) { warn(cfg, text, args...) },
		OnSwitch: onSwitch,
		Checked: func(begin time.Time, addr string, s *pipeline.Session, err error) {
			cfg.Trace.dial(begin, addr, true, s, err)
		},
	})
}

// sentinelConfig returns the Config of a connection to the sentinel at addr. announced is its address as announced or in
// Addrs.
func (cfg *Config) sentinelConfig(announced, addr string) *Config {
	s := &cfg.Sentinel
	c := &Config{
		Network:     cfg.Network,
		Addr:        announced,
		Username:    s.Username,
		Password:    s.Password,
		NoIdentity:  cfg.NoIdentity,
		Protocol:    cfg.Protocol,
		TLS:         s.TLS,
		Dial:        cfg.Dial,
		DialTimeout: s.Timeout,
		Timeout:     s.Timeout,
		Limits:      cfg.Limits,
	}
	c.setDialAddr(addr)
	return c
}

// serverConfig returns the Config of a connection to the server announced at addr.
func (cfg *Config) serverConfig(addr string) *Config {
	c := *cfg
	c.Addr = addr
	c.setDialAddr(c.Sentinel.NodeMap(addr))
	return &c
}

// setDialAddr replaces Addr, an announced address, by addr, the address to dial. TLS keeps the announced host as the
// ServerName, since certificates contain the announced host.
func (cfg *Config) setDialAddr(addr string) {
	if cfg.TLS != nil && cfg.TLS.ServerName == "" {
		cfg.TLS = cfg.TLS.Clone()
		cfg.TLS.ServerName = cfg.serverName()
	}
	cfg.Addr = addr
}
