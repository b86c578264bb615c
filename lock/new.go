package lock

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/lock/internal/machine"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// New returns a Client on server. The caller keeps server and closes it. If New cannot classify server, it returns
// [ErrInvalid]: see [Server].
//
// New waits for no server: goroutines and the connection for wake-ups start when first needed. The client has a random
// identity, so the server sees every process, and every Client of a process, as distinct.
func New(server Server, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	nature, err := classify(server, cfg.Standalone)
	if err != nil {
		return nil, err
	}
	c := &Client{
		server: server,
		nature: nature,
		cfg:    cfg,
		id:     newUUID(),
		pace:   defaultPace,
		limits: newLimits(cfg.AtMost, cfg.StopBefore),
		boot:   clock.NewBoot().At,
		events: pubsub.New(nature.dialer(server), pubsub.Config{Logger: cfg.Logger}),
		done:   make(chan struct{}),
		over:   make(chan struct{}),
		table:  table{entries: make(map[entryKey]*entry)},
	}
	if s, ok := nature.inner.(interface{ Machine() *machine.Machine }); ok { // package locktest
		c.boot = s.Machine().Clock()
	}
	c.know()
	c.life, c.end = context.WithCancel(context.Background())
	c.bounds = newBounds(&c.timers)
	c.calls.idle, c.changes.idle = make(chan struct{}), make(chan struct{})
	c.visitor = c.id + ":0"
	c.reader, c.writer = c.id+":r", c.id+":w"
	c.watchdog = renewals{c}.watchdog(renewals{c}.listenForced)
	c.calm = onLoss(server, c.watchdog.Raise)
	c.unname = introduce(server, cfg.Name+":"+c.id)
	c.cleanup = c.newCleanup()
	return c, nil
}

// know makes the records of what the client knows of its server.
func (c *Client) know() {
	c.log = &logs.Log{Logger: c.cfg.Logger, Show: c.cfg.ShowName}
	s := c.nature.remote(c.server, c.log)
	c.remote = s
	c.channels = remote.NewChannels(s, c.nature.publish(c.cfg.Publish), func(fn func(context.Context)) bool {
		return c.background(func() { fn(c.life) })
	})
	c.replicas = remote.NewReplicas(s, c.nature.acks(c.cfg.Acks, c.cfg.AckTimeout))
	c.clocks = remote.NewClocks(s)
	c.identity = remote.NewIdentity(s, c.now)
	c.scripts = remote.NewRunner(s, c.clocks, c.channels)
}

var defaultPace = looks.Pace{
	Floor:   10 * time.Millisecond,
	Ceiling: 10 * time.Second,
	PollMin: 50 * time.Millisecond,
	PollMax: time.Second,
	Slack:   2 * time.Millisecond,
}
