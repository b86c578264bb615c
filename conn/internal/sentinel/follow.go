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
	for failed := 0; ctx.Err() == nil; {
		var err error
		useful := false
		for _, at := range r.list() {
			if r.asks.wait(ctx, nil) != nil {
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
			failed = 0
			continue
		}
		if failed == 0 {
			r.cfg.Warn("no sentinel to listen to", "error", err)
		}
		if netfail.Sleep(ctx, netfail.Backoff(failed, minRoundPause, maxRoundPause), nil, nil) != nil {
			return
		}
		failed++
	}
}

// listen subscribes at the sentinel at an address, and returns when the connection is lost. confirmed reports whether the
// sentinel confirmed the subscription.
func (r *Resolver) listen(ctx context.Context, at sentinelAddr) (confirmed bool, err error) {
	stream, err := r.cfg.Ask(ctx, at.announced, at.addr)
	if err != nil {
		return false, err
	}
	values, over := make(chan resp.Value), make(chan struct{})
	var lost error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(values)
		for {
			var v resp.Value
			if v, lost = stream.Read(); lost != nil {
				return
			}
			select {
			case values <- v:
			case <-over:
				return
			}
		}
	})
	confirmed, err = r.serve(ctx, at, stream, values)
	close(over)
	_ = stream.Close()
	reader.Wait()
	return confirmed, cmp.Or(err, lost)
}

// serve handles the values from stream until the connection ends, or the sentinel stops answering PINGs. at is the
// sentinel.
func (r *Resolver) serve(ctx context.Context, at sentinelAddr, stream Stream, values <-chan resp.Value) (confirmed bool, err error) {
	if err := stream.Write(ctx, resp.Cmd("SUBSCRIBE", switchMaster, promoted)); err != nil {
		return false, err
	}
	p := pingState{asked: time.Now(), timer: time.NewTimer(0)}
	defer p.timer.Stop()
	for {
		v, ok, err := r.await(ctx, stream, values, &p)
		if err != nil || !ok {
			return confirmed, err
		}
		p.asked, p.last = time.Time{}, time.Now()
		if !confirmed && v.Err() != nil {
			return false, fmt.Errorf("SUBSCRIBE: %w", v.Err())
		}
		confirmed = r.handleValue(ctx, at, v) || confirmed
	}
}

// pingState is what serve knows of the sentinel's answers.
type pingState struct {
	asked time.Time // time of the unanswered command; zero without one
	last  time.Time // time of the last answer
	due   bool      // a PING is due at once
	timer *time.Timer
}

// await returns the next value from stream, and sends PINGs meanwhile. ok is false at the end of the connection.
func (r *Resolver) await(ctx context.Context, stream Stream, values <-chan resp.Value, p *pingState) (v resp.Value, ok bool, err error) {
	for {
		select {
		case v, ok = <-values: // it may have arrived while an announcement was handled
			return v, ok, nil
		default:
		}
		wait, err := r.ping(ctx, stream, p)
		if err != nil {
			return v, false, err
		}
		p.timer.Reset(wait)
		select {
		case v, ok = <-values:
			return v, ok, nil
		case <-r.checkListener:
			p.due = true
		case <-p.timer.C:
		case <-ctx.Done():
			return v, false, netfail.Ended(ctx)
		}
	}
}

// ping sends a PING if one is due, and returns the time until the next step. The error is errMute if an answer is overdue.
func (r *Resolver) ping(ctx context.Context, stream Stream, p *pingState) (wait time.Duration, err error) {
	every := r.cfg.PingInterval
	switch {
	case !p.asked.IsZero():
		if wait = r.cfg.Timeout - time.Since(p.asked); wait <= 0 {
			return 0, errMute
		}
		return wait, nil
	case p.due || every > 0 && time.Since(p.last) >= every:
		p.asked, p.due = time.Now(), false
		return r.cfg.Timeout, stream.Write(ctx, resp.Cmd("PING"))
	case every > 0:
		return every - time.Since(p.last), nil
	}
	return time.Hour, nil
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
	m, _, _ := r.current()
	if from != m.announced || to == m.announced || r.confirmMaster(ctx, m, to, m.epoch+1) != nil {
		r.pollSoon(at)
	}
}

// confirmMaster connects to an announced server, which then becomes the known master if it has the role of a master.
func (r *Resolver) confirmMaster(ctx context.Context, m master, announced string, epoch int64) error {
	if err := r.checks.wait(ctx, nil); err != nil {
		return err
	}
	begin := time.Now()
	s, err := r.connect(ctx, m.seq, announced, epoch)
	if s != nil {
		s.HangUp()
	}
	if r.cfg.Checked != nil {
		r.cfg.Checked(begin, r.cfg.Map(announced), s, err)
	}
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
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for n, failed := 0, 0; ; n++ {
		wait := r.cfg.PollInterval
		if failed > 0 {
			wait = netfail.Backoff(failed-1, 2*minRoundPause, max(r.cfg.PollInterval, maxRoundPause))
		} else if wait <= 0 {
			wait = forever
		}
		timer.Reset(wait)
		first := sentinelAddr{}
		select {
		case first = <-r.pollNow:
		case <-timer.C:
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
	m, _, _ := r.current()
	list := r.list()
	list = append(list[n%len(list):], list[:n%len(list)]...)
	if first != (sentinelAddr{}) {
		list = append([]sentinelAddr{first}, list...)
	}
	err := errUnknownMaster
	silence, ended := r.eachAnswer(ctx, nil, list, m, func(a answer) bool {
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
