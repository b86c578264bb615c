package cleanup

import (
	"context"
	"errors"
	"time"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// spare is a latch kept for the next release of the same lock, which saves the command to delete the latch. Without it 64
// callers, each with a lock, made 11 % fewer pairs of Lock and Unlock.
type spare struct {
	key  string
	idle bool // unused since the last sweep
}

type latch struct {
	name, key string
	until     int64 // the end of the latch, by the server's clock, in ms, as a request may still arrive; 0: now
}

// DeleteLatch deletes the latch of a release whose caller knows the outcome, or another key of a lock that nobody needs.
func (u *Cleanup) DeleteLatch(name, key string) { u.SettleLatch(name, key, false, 0) }

// SettleLatch deletes a latch or, with stays, keeps the latch until no request with it is valid.
func (u *Cleanup) SettleLatch(name, key string, stays bool, last int64) {
	l := latch{name: name, key: key}
	if stays {
		l.until = last
	}
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		u.deleteLatches(context.Background(), []latch{l}, aloneLast)
		return
	}
	u.latches = append(u.latches, l)
	if len(u.latches) == 1 {
		u.startLocked()
	}
	u.mu.Unlock()
}

// SpareLatch returns a latch kept by KeepLatch for locks of the given name, or "". The caller owns the latch.
func (u *Cleanup) SpareLatch(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.spares[name]
	if ok {
		delete(u.spares, name)
	}
	return s.key
}

// KeepLatch keeps a latch for the next release of the lock, unless another latch is kept already.
func (u *Cleanup) KeepLatch(name, key string) {
	u.mu.Lock()
	if _, ok := u.spares[name]; ok || u.closed {
		u.mu.Unlock()
		u.DeleteLatch(name, key)
		return
	}
	if u.spares == nil {
		u.spares = make(map[string]spare)
	}
	u.spares[name] = spare{key: key}
	u.startSweepsLocked()
	u.mu.Unlock()
}

// StartSweeps makes the loop sweep the spares and call Config.Sweep.
func (u *Cleanup) StartSweeps() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.startSweepsLocked()
}

func (u *Cleanup) startSweepsLocked() {
	if !u.sweeps {
		u.sweeps = true
		u.startLocked()
	}
}

// sweepLocked deletes the spares unused since the last sweep, and calls Config.Sweep. With all, sweepLocked
// removes all of both.
func (u *Cleanup) sweepLocked(all bool) {
	for name, s := range u.spares {
		if s.idle || all {
			delete(u.spares, name)
			u.latches = append(u.latches, latch{name: name, key: s.key})
		} else {
			u.spares[name] = spare{key: s.key, idle: true}
		}
	}
	if len(u.spares) == 0 {
		u.spares = nil // frees a possibly large map
	}
	u.sweeps = u.cfg.Sweep(all) || len(u.spares) > 0
}

// dueLatches returns the latches to delete now.
func (u *Cleanup) dueLatches(a *agenda, at time.Time, closing bool) []latch {
	if a.busy[latchLane] || a.flush.IsZero() || at.Before(a.flush) && !closing {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	latches := u.latches
	u.latches, a.flush, a.busy[latchLane] = nil, time.Time{}, true
	return latches
}

func (u *Cleanup) flushLatches(latches []latch) {
	u.deleteLatches(u.life, latches, batchLimit)
	u.giveBack(batch{lane: latchLane})
}

// deleteLatches deletes latches. After a failure, latches stay until they expire.
func (u *Cleanup) deleteLatches(life context.Context, latches []latch, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	ctx = remote.Patient(ctx)
	replies, err := u.cfg.Server.Doer.SendBatch(ctx, u.deletions(latches))
	if err == nil && errors.Is(replies[len(replies)-1].Err(), resp.ErrCrossSlot) && !u.oneKeyOnly.Swap(true) {
		_, err = u.cfg.Server.Doer.SendBatch(ctx, u.deletions(latches))
	}
	if err != nil {
		u.cfg.Server.Log.Warn("latches stay until they expire", "count", len(latches), "error", err)
	}
}

// deletions returns the commands to delete latches, or to set their expiry. A single server deletes many latches by
// one command, at much less cost for both sides, unless the server has turned out to be a node of a cluster.
func (u *Cleanup) deletions(latches []latch) (commands []resp.Command) {
	apart := u.cfg.Server.Spread != nil || u.oneKeyOnly.Load()
	words := make([]string, 1, 1+len(latches))
	words[0] = "DEL"
	for _, l := range latches {
		var cmd resp.Command
		switch {
		case l.until > 0:
			cmd = resp.Cmd("PEXPIREAT", l.key, l.until)
		case apart:
			cmd = resp.Cmd("DEL", l.key)
		default:
			words = append(words, l.key)
			continue
		}
		commands = append(commands, cmd.On(l.name))
	}
	if len(words) > 1 {
		commands = append(commands, resp.CmdStrings(words).On(words[1]))
	}
	return commands
}
