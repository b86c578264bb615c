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

	// promoted is the channel on which the leader of a failover reports the promotion: earlier than switchMaster, by
	// the time for reconfiguring the replicas.
	promoted = "+promoted-slave"

	// forever is a time that no program lives to see.
	forever = time.Duration(1<<63 - 1)
)

var errMute = errors.New("the sentinel does not answer PING")

// Follow listens to one sentinel, and to another after a failure, until ctx ends. It connects to an announced master.
func (f *Resolver) Follow(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		var err error
		useful := false
		for _, at := range f.list() {
			if f.asks.wait(ctx, nil) != nil {
				return
			}
			begin := time.Now()
			useful, err = f.listen(ctx, at)
			if ctx.Err() != nil {
				return
			}
			f.demote(at)
			if useful = useful && time.Since(begin) >= maxRoundPause; useful {
				break
			}
		}
		if useful {
			failed = 0
			continue
		}
		if failed == 0 {
			f.cfg.Warn("no sentinel to listen to", "error", err)
		}
		if netfail.Sleep(ctx, netfail.Backoff(failed, minRoundPause, maxRoundPause), nil, nil) != nil {
			return
		}
		failed++
	}
}

// listen subscribes to the sentinel at a place and returns when the connection is lost. confirmed reports whether the
// sentinel confirmed the subscription.
func (f *Resolver) listen(ctx context.Context, at place) (confirmed bool, err error) {
	stream, err := f.cfg.Ask(ctx, at.announced, at.addr)
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
	confirmed, err = f.serve(ctx, at, stream, values)
	close(over)
	_ = stream.Close()
	reader.Wait()
	return confirmed, cmp.Or(err, lost)
}

// serve handles the values from stream, of the sentinel at a place, until the connection ends or the sentinel stops answering.
func (f *Resolver) serve(ctx context.Context, at place, stream Stream, values <-chan resp.Value) (confirmed bool, err error) {
	if err := stream.Write(ctx, resp.Cmd("SUBSCRIBE", switchMaster, promoted)); err != nil {
		return false, err
	}
	p := pings{asked: time.Now(), timer: time.NewTimer(0)}
	defer p.timer.Stop()
	for {
		v, ok, err := f.await(ctx, stream, values, &p)
		if err != nil || !ok {
			return confirmed, err
		}
		p.asked, p.last = time.Time{}, time.Now()
		if !confirmed && v.Err() != nil {
			return false, fmt.Errorf("SUBSCRIBE: %w", v.Err())
		}
		confirmed = f.receive(ctx, at, v) || confirmed
	}
}

// pings is what serve knows of the sentinel's answers.
type pings struct {
	asked time.Time // of the unanswered command; zero without one
	last  time.Time // of the last answer
	due   bool      // a PING is due at once
	timer *time.Timer
}

// await returns the next value from stream, and sends PINGs meanwhile. ok is false at the end of the connection.
func (f *Resolver) await(ctx context.Context, stream Stream, values <-chan resp.Value, p *pings) (v resp.Value, ok bool, err error) {
	for {
		select {
		case v, ok = <-values: // it may have arrived while an announcement was handled
			return v, ok, nil
		default:
		}
		wait, err := f.ping(ctx, stream, p)
		if err != nil {
			return v, false, err
		}
		p.timer.Reset(wait)
		select {
		case v, ok = <-values:
			return v, ok, nil
		case <-f.checkListener:
			p.due = true
		case <-p.timer.C:
		case <-ctx.Done():
			return v, false, netfail.Ended(ctx)
		}
	}
}

// ping sends a PING if one is due, and returns the time until the next step. The error is errMute if an answer is overdue.
func (f *Resolver) ping(ctx context.Context, stream Stream, p *pings) (wait time.Duration, err error) {
	every := f.cfg.PingInterval
	switch {
	case !p.asked.IsZero():
		if wait = f.cfg.Timeout - time.Since(p.asked); wait <= 0 {
			return 0, errMute
		}
		return wait, nil
	case p.due || every > 0 && time.Since(p.last) >= every:
		p.asked, p.due = time.Now(), false
		return f.cfg.Timeout, stream.Write(ctx, resp.Cmd("PING"))
	case every > 0:
		return every - time.Since(p.last), nil
	}
	return time.Hour, nil
}

// receive handles a value from the sentinel, and reports whether it confirms the subscription.
func (f *Resolver) receive(ctx context.Context, at place, v resp.Value) (confirms bool) {
	kind, _ := v.At(0).Text()
	channel, _ := v.At(1).Text()
	switch kind + channel {
	case "subscribe" + switchMaster: // earlier messages were lost
		f.wake(at)
		return true
	case "message" + promoted:
		f.wake(at)
	case "message" + switchMaster:
		text, _ := v.At(2).Text()
		if words := strings.Split(text, " "); len(words) == 5 && words[0] == f.cfg.Master {
			if to := announced(words[3], words[4]); to != "" {
				f.announced(ctx, at, announced(words[1], words[2]), to)
			}
		}
	}
	return false
}

// announced handles a switch announced by a sentinel. If the switch leads away from the known master, and the new master
// confirms the role, announced is done. Otherwise the announcement may be old, and Watch asks the sentinel.
func (f *Resolver) announced(ctx context.Context, at place, from, to string) {
	m, _, _ := f.current()
	if from != m.announced || to == m.announced || f.check(ctx, m, to, m.epoch+1) != nil {
		f.wake(at)
	}
}

// check connects to the announced master, which then becomes the known master.
func (f *Resolver) check(ctx context.Context, m master, announced string, epoch int64) error {
	if err := f.checks.wait(ctx, nil); err != nil {
		return err
	}
	begin := time.Now()
	s, err := f.connect(ctx, m.seq, announced, epoch)
	if s != nil {
		s.HangUp()
	}
	if f.cfg.Checked != nil {
		f.cfg.Checked(begin, f.cfg.Map(announced), s, err)
	}
	return err
}

// wake makes Watch ask at once, beginning with the sentinel at a place.
func (f *Resolver) wake(at place) {
	select {
	case f.pollNow <- at:
	default:
	}
}

// Watch regularly asks a sentinel for the master, until ctx ends. It also asks when Follow has heard of a change.
func (f *Resolver) Watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for n, failed := 0, 0; ; n++ {
		wait := f.cfg.PollInterval
		if failed > 0 {
			wait = netfail.Backoff(failed-1, 2*minRoundPause, max(f.cfg.PollInterval, maxRoundPause))
		} else if wait <= 0 {
			wait = forever
		}
		timer.Reset(wait)
		first := place{}
		select {
		case first = <-f.pollNow:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if f.poll(ctx, n, first) != nil {
			failed++
			continue
		}
		failed = 0
		f.refreshSuccession(ctx)
	}
}

// poll asks one sentinel for the master, a different sentinel each time, and connects to a new master.
func (f *Resolver) poll(ctx context.Context, n int, first place) error {
	m, _, _ := f.current()
	list := f.list()
	list = append(list[n%len(list):], list[:n%len(list)]...)
	if first != (place{}) {
		list = append([]place{first}, list...)
	}
	err := errUnknownMaster
	silence, ended := f.inquire(ctx, nil, list, m, func(a answer) bool {
		err = f.apply(ctx, m, a)
		return true
	})
	return cmp.Or(ended, silence, err)
}

// apply handles an answer to a question asked while m was the master.
func (f *Resolver) apply(ctx context.Context, m master, a answer) error {
	if f.cfg.Map(a.master) != m.addr {
		return f.check(ctx, m, a.master, a.epoch)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master.seq == m.seq && a.epoch >= 0 {
		f.master.announced, f.master.epoch = a.master, a.epoch
	}
	return nil
}
