package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
)

const (
	// switchMaster is the channel on which sentinels announce a new master.
	switchMaster = "+switch-master"

	// promoted is where the one that leads a failover does so earlier by the time that it takes to tell the replicas.
	promoted = "+promoted-slave"
)

var errMute = errors.New("the sentinel does not answer PING")

// follow listens to one sentinel, and to another one when that is lost, until ctx ends.
func (f *finder) follow(ctx context.Context) {
	policy := Retry{MinBackoff: minRoundPause, MaxBackoff: maxRoundPause}
	for failed := 0; ctx.Err() == nil; {
		var err error
		useful := false
		for _, addr := range f.list() {
			if f.asks.wait(ctx, nil) != nil {
				return
			}
			begin := time.Now()
			useful, err = f.listen(ctx, addr)
			if ctx.Err() != nil {
				return
			}
			f.demote(addr)
			if useful = useful && time.Since(begin) >= maxRoundPause; useful {
				break
			}
		}
		if useful {
			failed = 0
			continue
		}
		if failed == 0 {
			warn(f.cfg, "no sentinel to listen to", "error", err)
		}
		if await(ctx, nil, policy.backoff(failed)) != nil {
			return
		}
		failed++
	}
}

// listen is subscribed to the sentinel at addr until the connection is lost. It reports whether the sentinel has
// confirmed the subscription.
func (f *finder) listen(ctx context.Context, addr string) (confirmed bool, err error) {
	stream, err := f.sentinel(ctx, addr)
	if err != nil {
		return false, err
	}
	said := news{wake: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() {
		said.read(stream, f.cfg.Sentinel.Master)
		_ = stream.Close()
	})
	err = f.attend(ctx, stream, &said)
	_ = stream.Close()
	reader.Wait()
	confirmed, cause := said.end()
	if err == nil {
		err = cause
	}
	return confirmed, err
}

// attend acts upon what is read from stream, and asks for signs of life, until the connection ends or is mute.
func (f *finder) attend(ctx context.Context, stream *Stream, said *news) error {
	if err := stream.Write(ctx, resp.Cmd("SUBSCRIBE", switchMaster, promoted)); err != nil {
		return err
	}
	asked := time.Now() // what has no answer yet; zero if there is none
	var last time.Time  // the last answer
	doubts := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e, ask, heard, lost := said.take()
		if lost {
			return nil
		}
		if heard {
			asked, last = time.Time{}, time.Now()
		}
		if ask {
			f.wake(stream.Addr())
		}
		if e != (announcement{}) {
			f.announced(ctx, stream.Addr(), e)
			continue // an answer may have come meanwhile
		}
		wait := time.Hour
		switch now := time.Now(); {
		case !asked.IsZero():
			if wait = asked.Add(f.cfg.Sentinel.Timeout).Sub(now); wait <= 0 {
				return errMute
			}
		case f.cfg.PingInterval > 0 || doubts:
			if wait = last.Add(f.cfg.PingInterval).Sub(now); wait <= 0 || doubts {
				asked, doubts = now, false
				if err := stream.Write(ctx, resp.Cmd("PING")); err != nil {
					return err
				}
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-said.wake:
		case <-f.nudge:
			doubts = true
		case <-timer.C:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// announced acts upon a switch that the sentinel at addr tells of. If it leads away from the master that is known, and
// the new one agrees, that is all there is to it; otherwise the sentinel is asked, as the news may be old.
func (f *finder) announced(ctx context.Context, sentinel string, e announcement) {
	m, _, _ := f.current()
	if e.from == m.announced && e.to != m.announced && f.check(ctx, m, e.to, m.epoch+1) == nil {
		return
	}
	f.wake(sentinel)
}

// check connects to the server announced as the new master, which thereby becomes the one that is known.
func (f *finder) check(ctx context.Context, m master, announced string, epoch int64) error {
	if err := f.checks.wait(ctx, nil); err != nil {
		return err
	}
	begin := time.Now()
	s, err := f.connect(ctx, m.seq, announced, epoch)
	if s != nil {
		_ = hangUp(s.nc)
	}
	f.cfg.Trace.dial(begin, f.cfg.Sentinel.mapped(announced), true, s.protocol(), err)
	return err
}

// wake has watch ask at once, first the given sentinel.
func (f *finder) wake(sentinel string) {
	select {
	case f.kick <- sentinel:
	default:
	}
}

// watch asks a sentinel now and then whether the master is still the same, until ctx ends.
func (f *finder) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	policy := Retry{MinBackoff: 2 * minRoundPause, MaxBackoff: max(f.cfg.Sentinel.PollInterval, maxRoundPause)}
	for n, failed := 0, 0; ; n++ {
		wait := f.cfg.Sentinel.PollInterval
		if failed > 0 {
			wait = policy.backoff(failed - 1)
		} else if wait <= 0 {
			wait = never
		}
		timer.Reset(wait)
		first := ""
		select {
		case first = <-f.kick:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if f.poll(ctx, n, first) != nil {
			failed++
			continue
		}
		failed = 0
		f.refreshHeirs(ctx)
	}
}

// poll asks one sentinel, another one each time, for the master. If it is not the one that is known, it is connected to.
func (f *finder) poll(ctx context.Context, n int, first string) error {
	m, _, _ := f.current()
	list := f.list()
	list = append(list[n%len(list):], list[:n%len(list)]...)
	if first != "" {
		list = append([]string{first}, list...)
	}
	var aside answer
	err := errUnknownMaster
	for _, addr := range list {
		if err := f.asks.wait(ctx, nil); err != nil {
			return err
		}
		var a answer
		a, err = f.question(ctx, addr)
		switch {
		case ctx.Err() != nil:
			return ended(ctx)
		case err != nil:
			f.demote(addr)
		case a.older(m):
			aside = aside.newer(a)
		default:
			return f.settle(ctx, m, a)
		}
	}
	if aside.master != "" {
		return f.settle(ctx, m, aside)
	}
	return err
}

// settle acts upon the answer of a sentinel that was asked when m was the master.
func (f *finder) settle(ctx context.Context, m master, a answer) error {
	if f.cfg.Sentinel.mapped(a.master) != m.addr {
		return f.check(ctx, m, a.master, a.epoch)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master.seq == m.seq && a.epoch >= 0 {
		f.master.announced, f.master.epoch = a.master, a.epoch
	}
	return nil
}

// announcement is what a sentinel says about a new master.
type announcement struct{ from, to string }

// news is what the reader of a subscription has for the one who attends to it.
type news struct {
	wake chan struct{} // holds a token while there is something new

	mu        sync.Mutex // guards the following
	confirmed bool
	ask       bool         // there is a reason to: confirmed, before which nobody has listened, or a hint
	heard     bool         // anything
	latest    announcement // only the last one counts
	lost      bool
	err       error
}

// read reads until the connection ends.
func (s *news) read(stream *Stream, name string) {
	for {
		v, err := stream.Read()
		s.mu.Lock()
		switch {
		case err != nil:
			s.lost, s.err = true, err
		case v.Err() != nil && !s.confirmed:
			err = fmt.Errorf("SUBSCRIBE: %w", v.Err())
			s.lost, s.err = true, err
		default:
			s.noteLocked(v, name)
		}
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (s *news) noteLocked(v resp.Value, name string) {
	s.heard = true
	kind, _ := v.At(0).Text()
	channel, _ := v.At(1).Text()
	switch kind + channel {
	case "subscribe" + switchMaster:
		s.ask, s.confirmed = true, true
	case "message" + promoted:
		s.ask = true
	case "message" + switchMaster:
		text, _ := v.At(2).Text()
		if words := strings.Split(text, " "); len(words) == 5 && words[0] == name {
			if to := announced(words[3], words[4]); to != "" {
				s.latest = announcement{from: announced(words[1], words[2]), to: to}
			}
		}
	}
}

// take returns what is new: the last announcement, whether there is a reason to ask, whether anything was read, and
// whether the connection is lost.
func (s *news) take() (e announcement, ask, heard, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ask, heard, lost = s.latest, s.ask, s.heard, s.lost
	s.latest, s.ask, s.heard = announcement{}, false, false
	return e, ask, heard, lost
}

func (s *news) end() (confirmed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed, s.err
}
