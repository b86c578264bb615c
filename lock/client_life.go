package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/lock/internal/bounds"
	"github.com/lockwire/lockwire/lock/internal/cleanup"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/lock/internal/looks"
	"github.com/lockwire/lockwire/lock/internal/machine"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// New returns a Client on server. The caller keeps server and closes it. New returns [ErrInvalid] for settings that cannot
// work, and for a server that it cannot classify: see [Server].
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
		server:    server,
		nature:    nature,
		cfg:       cfg,
		id:        newUUID(),
		pace:      looks.Usual(),
		boot:      clock.NewBoot().At,
		events:    pubsub.New(nature.dialer(server), pubsub.Config{Logger: cfg.Logger}),
		done:      make(chan struct{}),
		closeDone: make(chan struct{}),
		table:     table{entries: make(map[entryKey]*entry)},
	}
	if s, ok := nature.inner.(interface{ Machine() *machine.Machine }); ok { // package locktest
		c.boot = s.Machine().Clock()
	}
	c.initRemote()
	c.life, c.endLife = context.WithCancel(context.Background())
	c.bounds = bounds.New()
	c.tryPlace = c.id + ":0"
	c.readerID, c.writerID = c.id+":r", c.id+":w"
	c.watchdog = renewals{c}.watchdog(func() (*pubsub.Subscription, error) { return c.events.Listen(kinds.ForcedChannel) })
	c.cleanup = c.newCleanup()
	c.stopLossReports, c.removeTitle = func() {}, func() {}
	if s, ok := find[interface{ OnLoss(fn func()) (stop func()) }](server); ok {
		c.stopLossReports = s.OnLoss(func() {
			c.watchdog.Raise()
			c.cleanup.Lost()
		})
	}
	if s, ok := find[interface {
		Introduce(name string) (stop func())
	}](server); ok {
		c.removeTitle = s.Introduce(cfg.Name + ":" + c.id)
	}
	return c, nil
}

// newUUID returns a random UUID, version 4, in the form of Java's UUID.toString.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// initRemote makes the records of what the client knows of its server.
func (c *Client) initRemote() {
	c.log = &logs.Log{Logger: c.cfg.Logger, Show: c.cfg.ShowName}
	s := c.nature.remote(c.server, c.log)
	c.remote = s
	c.channels = remote.NewChannels(s, c.nature.publish(c.cfg.Publish), func(fn func(context.Context)) bool {
		return c.background(func() { fn(c.life) })
	})
	c.replicas = remote.NewReplicas(s, c.nature.acks(c.cfg.Acks, c.cfg.AckTimeout, c.log))
	c.clocks = remote.NewClocks(s)
	c.identity = remote.NewIdentity(s, c.now)
	c.scripts = remote.NewRunner(s, c.clocks, c.channels, c.now)
}

// Close ends the client's activity. Waiting calls return [ErrClosed], every held lease is lost with the reason
// [ClientClosed], and renewal stops. The locks stay taken on the server until their leases end or until Unlock, which
// still works: Close cannot know whether the guarded work has stopped. Calls that neither take a lock nor wait for one still work
// too, such as Info, ForceUnlock, and Release of a [Semaphore].
//
// Close repeats unconfirmed releases, undoes pending acquires, and waits for calls of Unlock, for up to one second in all; an Unlock
// without an answer by then returns [ErrUncertain]. If a second is not enough for the releases and acquires,
// Close returns a [*CloseError] with the number of locks and permits that the server may have kept. A second Close
// returns the same result.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), bounds.CloseTime)
	defer cancel()
	return c.CloseContext(ctx)
}

// CloseContext is Close with ctx in place of the limit of one second: Close repeats unconfirmed changes, and waits for calls of
// Unlock, until ctx ends. Of several calls, also of Close, the one with the least time decides.
func (c *Client) CloseContext(ctx context.Context) error {
	c.table.mu.Lock()
	first := !c.table.closed
	if first {
		c.table.closed = true
		ctx, c.hurryClose = context.WithCancel(ctx)
	}
	c.table.mu.Unlock()
	if first {
		c.closeErr = c.close(ctx)
		c.hurryClose()
		close(c.closeDone)
	}
	select {
	case <-c.closeDone:
	case <-ctx.Done():
		c.hurryClose()
		<-c.closeDone
	}
	return errors.Join(c.closeErr, c.events.Close())
}

func (c *Client) close(ctx context.Context) error {
	c.table.mu.Lock()
	close(c.done)
	held := slices.Collect(c.table.leases)
	c.table.mu.Unlock()
	for _, l := range held { // before requests end with the client: their callers then find the loss
		l.lose(ClientClosed, nil)
	}
	c.endLife()
	stop := c.bounds.HurryTasks(ctx)
	defer stop()
	c.stopLossReports()
	c.removeTitle()
	c.watchdog.Close()
	c.waiters.Wait()
	acquires, asked := c.acquires.Close(ctx)
	changes, returned := c.changes.Close(ctx)
	c.tasks.Wait() // before cleanup ends: the tasks leave releases to it
	abandoned := c.cleanup.Close(ctx)
	abandoned.Acquires, abandoned.Changes, abandoned.Permits = abandoned.Acquires+acquires, abandoned.Changes+changes, abandoned.Permits+asked+returned
	c.bounds.Close(ctx)
	c.timers.Wait()
	if abandoned == (cleanup.Abandoned{}) {
		return nil
	}
	c.log.Warn("closed before all was given back", "releases", abandoned.Releases, "acquires", abandoned.Acquires,
		"changes", abandoned.Changes, "permits", abandoned.Permits)
	return (*CloseError)(&abandoned)
}

// CloseError is the error of a Close that has given up unconfirmed changes, or of a Close after the Close of the
// client's [Server], which makes the client give up the same changes. Locks become free when their leases end.
// Permits of a [Semaphore] have no lease and may be lost.
type CloseError struct {
	Releases int // locks and leased permits that Unlock had left to the background
	Acquires int // acquires without a reply that were to be undone, including calls still under way
	Changes  int // changes left to the background, such as the Release of a Semaphore or a CountDown
	Permits  int // permits that the server may still count as taken as a result
}

// Error states the numbers.
func (e *CloseError) Error() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{e.Releases, "releases"}, {e.Acquires, "undone acquires"}, {e.Changes, "changes"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	text := "lock: closed before the server had confirmed " + strings.Join(parts, ", ")
	if e.Permits > 0 {
		text += fmt.Sprintf(", of %d permits", e.Permits)
	}
	return text
}

// Is makes errors.Is find [ErrUncertain].
func (e *CloseError) Is(target error) bool { return target == ErrUncertain }
