package sentinel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const (
	// switchMaster is the channel for announcements of a new master.
	switchMaster = "+switch-master"

	// promoted is the channel on which the leader of a failover reports the promotion. The message comes before the one on
	// switchMaster, which follows after the reconfiguration of the other replicas.
	promoted = "+promoted-slave"

	// forever is a time that no program lives to see.
	forever = time.Duration(1<<63 - 1)
)

var errMute = errors.New("the sentinel does not answer PING")

// Follow listens to one sentinel, and to another after a failure, until ctx ends. It connects to an announced master.
func (r *Resolver) Follow(ctx context.Context) {
	for p := (pause{}); ctx.Err() == nil; {
		var err error
		useful := false
		for _, at := range r.list() {
			if r.asks.wait(ctx) != nil {
				return
			}
			begin := time.Now()
			useful, err = r.listen(ctx, at)
			if ctx.Err() != nil {
				return
			}
			r.demote(at)
			if useful = useful && time.Since(begin) >= maxRoundPause; useful {
				break
			}
		}
		if useful {
			p = pause{}
			continue
		}
		if p.failed == 0 {
			r.cfg.Warn("no sentinel to listen to", "error", err)
		}
		p.extend()
		_ = netfail.Sleep(ctx, time.Until(p.until))
	}
}

// listen subscribes at the sentinel at an address, and returns when the connection is lost. confirmed reports whether the
// sentinel confirmed the subscription.
func (r *Resolver) listen(ctx context.Context, at sentinelAddr) (confirmed bool, err error) {
	stream, err := r.cfg.Ask(ctx, at.announced, at.addr)
	if err != nil {
		return false, err
	}
	values := make(chan resp.Value, 1)
	var lost error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(values)
		for {
			var v resp.Value
			if v, lost = stream.Read(); lost != nil {
				return
			}
			values <- v
		}
	})
	confirmed, err = r.serve(ctx, at, stream, values)
	_ = stream.Close()
	for range values { // until the reader has ended
	}
	reader.Wait()
	return confirmed, cmp.Or(err, lost)
}

// serve subscribes, and handles the values from stream until the connection ends, or the sentinel, at, does not answer. serve
// sends a PING after a silence, and after Suspect.
func (r *Resolver) serve(ctx context.Context, at sentinelAddr, stream Stream, values <-chan resp.Value) (confirmed bool, err error) {
	silence := r.cfg.PingInterval
	if silence <= 0 {
		silence = forever
	}
	if err := stream.Write(ctx, resp.Cmd("SUBSCRIBE", switchMaster, promoted)); err != nil {
		return false, err
	}
	owing, doubted := true, false // the sentinel owes an answer; the next PING is due
	timer := time.NewTimer(r.cfg.Timeout)
	defer timer.Stop()
	for {
		if doubted && !owing {
			owing, doubted = true, false
			timer.Reset(r.cfg.Timeout)
			if err := stream.Write(ctx, resp.Cmd("PING")); err != nil {
				return confirmed, err
			}
		}
		select {
		case v, open := <-values:
			if !open {
				return confirmed, nil
			}
			owing = false
			timer.Reset(silence)
			if !confirmed && v.Err() != nil {
				return false, fmt.Errorf("SUBSCRIBE: %w", v.Err())
			}
			confirmed = r.handleValue(ctx, at, v) || confirmed
		case <-r.checkListener:
			doubted = true
		case <-timer.C:
			if owing && len(values) == 0 { // a value may have arrived while this program was stopped
				return confirmed, errMute
			}
			doubted = true
		case <-ctx.Done():
			return confirmed, netfail.Ended(ctx)
		}
	}
}

// handleValue handles a value from the sentinel, and reports whether it confirms the subscription.
func (r *Resolver) handleValue(ctx context.Context, at sentinelAddr, v resp.Value) (confirms bool) {
	kind, _ := v.At(0).Text()
	channel, _ := v.At(1).Text()
	switch kind + channel {
	case "subscribe" + switchMaster: // an earlier message may have been missed
		r.pollSoon(at)
		return true
	case "message" + promoted:
		r.pollSoon(at)
	case "message" + switchMaster:
		text, _ := v.At(2).Text()
		if words := strings.Split(text, " "); len(words) == 5 && words[0] == r.cfg.Master {
			if to := joinAddr(words[3], words[4]); to != "" {
				r.handleSwitch(ctx, at, joinAddr(words[1], words[2]), to)
			}
		}
	}
	return false
}

// handleSwitch handles a sentinel's announcement of a new master. Watch asks the sentinel, because the announcement may be
// old, unless the switch is from the known master, and the new master confirms the role.
func (r *Resolver) handleSwitch(ctx context.Context, at sentinelAddr, from, to string) {
	m := r.current()
	if from != m.announced || to == m.announced || r.confirmMaster(ctx, m, to, m.epoch+1) != nil {
		r.pollSoon(at)
	}
}

// confirmMaster connects to an announced server, which then becomes the known master if it has the role of a master.
func (r *Resolver) confirmMaster(ctx context.Context, m master, announced string, epoch int64) error {
	if err := r.checks.wait(ctx); err != nil {
		return err
	}
	begin := time.Now()
	s, err := r.connect(ctx, m, announced, epoch)
	if s != nil {
		s.HangUp()
	}
	r.cfg.Checked(begin, r.cfg.Map(announced), s, err)
	return err
}

// pollSoon makes Watch ask at once, beginning with the sentinel at an address.
func (r *Resolver) pollSoon(at sentinelAddr) {
	select {
	case r.pollNow <- at:
	default:
	}
}

// Watch regularly asks a sentinel for the master, until ctx ends. It also asks when Follow has heard of a change.
func (r *Resolver) Watch(ctx context.Context) {
	for n, failed := 0, 0; ; n++ {
		wait := r.cfg.PollInterval
		if failed > 0 {
			wait = netfail.Backoff(failed-1, 2*minRoundPause, max(r.cfg.PollInterval, maxRoundPause))
		} else if wait <= 0 {
			wait = forever
		}
		first := sentinelAddr{}
		select {
		case first = <-r.pollNow:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if r.poll(ctx, n, first) != nil {
			failed++
			continue
		}
		failed = 0
		r.refreshSuccession(ctx)
	}
}

// poll asks one sentinel for the master, a different sentinel each time, and connects to a new master.
func (r *Resolver) poll(ctx context.Context, n int, first sentinelAddr) error {
	m := r.current()
	list := r.list()
	list = append(list[n%len(list):], list[:n%len(list)]...)
	if first != (sentinelAddr{}) {
		list = append([]sentinelAddr{first}, list...)
	}
	err := errUnknownMaster
	silence, ended := r.eachAnswer(ctx, list, m, func(a answer) bool {
		err = r.applyAnswer(ctx, m, a)
		return true
	})
	return cmp.Or(ended, silence, err)
}

// applyAnswer handles an answer to a question asked while m was the master.
func (r *Resolver) applyAnswer(ctx context.Context, m master, a answer) error {
	if r.cfg.Map(a.master) != m.addr {
		return r.confirmMaster(ctx, m, a.master, a.epoch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.master.seq == m.seq && a.epoch >= 0 {
		r.master.announced, r.master.epoch = a.master, a.epoch
	}
	return nil
}
