package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// The commands for waking waiters.
const (
	PlainPublish = "PUBLISH"
	ShardPublish = "SPUBLISH"
)

// Since Redis 7.0 a new user may by default neither subscribe to channels nor publish on them. Locks of such a user work, but
// their waiters are never woken. The server reports a refused subscription. A release without the right to publish
// succeeds silently, so the client asks the server about the right.

// Channels is how the waiters of locks are woken, and what the user may do for it.
type Channels struct {
	server     *Server
	background func(fn func(ctx context.Context)) bool // constant; runs fn, with the context of background work
	command    atomic.Pointer[string]                  // nil until known

	asked      sync.Map // the rules with a checked right to publish
	subscribed sync.Map // the rules with a logged refusal to subscribe
}

// NewChannels returns the channels of s. command wakes waiters; "" if the server has to be asked. background runs
// a function beside its caller, unless the client is closed.
func NewChannels(s *Server, command string, background func(fn func(ctx context.Context)) bool) *Channels {
	ch := &Channels{server: s, background: background}
	if command != "" {
		ch.command.Store(&command)
	}
	return ch
}

// Settle determines, once, the command for waking waiters of l. Every acquire calls Settle first. The
// question to the server is the same as Redisson's.
func (ch *Channels) Settle(ctx context.Context, l Lock) error {
	if ch.command.Load() != nil {
		ch.checkPublishing(l)
		return nil
	}
	command := ShardPublish
	if _, err := ch.server.Doer.Send(Patient(ctx), resp.Cmd("PUBSUB", "SHARDNUMSUB", "0").On(l.Name)); err != nil {
		reply, answered := errors.AsType[resp.Error](err)
		if !answered || errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || NotReady(reply) {
			return fmt.Errorf("lock: asking whether the server has shard channels: %w", err)
		}
		command = PlainPublish
	}
	ch.command.Store(&command)
	ch.checkPublishing(l)
	return nil
}

// NotReady reports whether the reply of a server says that the server is not ready.
func NotReady(reply resp.Error) bool {
	switch {
	case netfail.Denied(reply):
		return false
	case netfail.Redirects(reply):
		return true
	}
	return netfail.Reply(reply) != netfail.Final || netfail.Reply(resp.Error(reply.Class())) != netfail.Final
}

// Publishing returns the command for waking waiters; "" for a silent kind, which has no notifications.
func (ch *Channels) Publishing(silent bool) string {
	if silent {
		return ""
	}
	if command := ch.command.Load(); command != nil {
		return *command
	}
	if ch.server.Spread != nil {
		return ShardPublish // not settled, as no server has answered yet: most clusters have shard channels
	}
	return PlainPublish
}

// ListenersKnown tells the scripts what the server of a lock knows of the listeners to the lock's channels: 0 only some of them, as those of a
// cluster's plain channels may be connected to any server; 1 all; 2 all of this package, as Redisson's clients may listen at a replica.
func (ch *Channels) ListenersKnown(silent bool) int {
	switch {
	case ch.server.Spread != nil && ch.Publishing(silent) != ShardPublish:
		return 0
	case ch.server.Failover != nil:
		return 2
	}
	return 1
}

// checkPublishing checks in the background, once per prefix, the user's right to publish on the channels of l, and logs a
// missing right. Without a Logger checkPublishing does nothing.
func (ch *Channels) checkPublishing(l Lock) {
	if ch.server.Log.Silent() || l.Silent {
		return
	}
	rule := l.rule()
	if _, asked := ch.asked.LoadOrStore(rule, true); !asked {
		ch.askRight(l, rule)
	}
}

// askRight asks the server for the user's right to publish on the channels of l, allowed by rule. In a separate function, because l
// escapes to the heap here.
func (ch *Channels) askRight(l Lock, rule string) {
	ch.background(func(ctx context.Context) {
		v, err := kinds.Publish.Get().Run(ctx, ch.server.Doer, []string{l.Name, l.Channel}, ch.Publishing(false))
		if err != nil || v.IsNull() {
			return
		}
		if may, err := v.Bool(); err == nil && !may {
			ch.server.Log.WarnOf(l.Name, l.KindName, "", "the user may not publish on the channels of locks: waiters are not woken by releases, and look now and then",
				"missing", "ACL rule "+rule)
		}
	})
}

// NoteRefusal logs, once per prefix, an err caused by a missing right to subscribe to the channel of l.
func (ch *Channels) NoteRefusal(l Lock, err error) {
	reply, _ := errors.AsType[resp.Error](err) // err also names the channel, and so the lock
	if !errors.Is(reply, resp.ErrNoPerm) {
		return
	}
	if _, logged := ch.subscribed.LoadOrStore(l.rule(), true); !logged {
		ch.server.Log.WarnOf(l.Name, l.KindName, "", "the user may not subscribe to the channels of locks: waiters are not woken, and look now and then",
			"missing", "ACL rule "+l.rule(), "error", reply)
	}
}
