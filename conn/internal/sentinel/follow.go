package sentinel

import (
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
			f.cfg.Warn("no sentinel to listen to", "error", err)
		}
		if netfail.Sleep(ctx, backoff(failed, minRoundPause, maxRoundPause), nil, nil) != nil {
			return
		}
		failed++
	}
}

// listen subscribes to the sentinel at addr and returns when the connection is lost. confirmed reports whether the
// sentinel confirmed the subscription.
func (f *Resolver) listen(ctx context.Context, addr string) (confirmed bool, err error) {
	stream, err := f.cfg.Ask(ctx, addr)
	if err != nil {
		return false, err
	}
	said := news{wake: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() {
		said.read(stream, f.cfg.Master)
		_ = stream.Close()
	})
	err = f.handleNews(ctx, stream, &said)
	_ = stream.Close()
	reader.Wait()
	confirmed, cause := said.end()
	if err == nil {
		err = cause
	}
	return confirmed, err
}

// handleNews handles the messages from stream and sends PINGs, until the connection ends or the sentinel stops answering.
func (f *Resolver) handleNews(ctx context.Context, stream Stream, said *news) error {
	if err := stream.Write(ctx, resp.Cmd("SUBSCRIBE", switchMaster, promoted)); err != nil {
		return err
	}
	asked := time.Now() // time of the unanswered command; zero without one
	var last time.Time  // time of the last answer
	suspicious := false
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
			continue // an answer may have arrived meanwhile
		}
		wait := time.Hour
		switch now := time.Now(); {
		case !asked.IsZero():
			if wait = asked.Add(f.cfg.Timeout).Sub(now); wait <= 0 {
				return errMute
			}
		case f.cfg.PingInterval > 0 || suspicious:
			if wait = last.Add(f.cfg.PingInterval).Sub(now); wait <= 0 || suspicious {
				asked, suspicious = now, false
				if err := stream.Write(ctx, resp.Cmd("PING")); err != nil {
					return err
				}
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-said.wake:
		case <-f.checkListener:
			suspicious = true
		case <-timer.C:
		case <-ctx.Done():
			return netfail.Ended(ctx)
		}
	}
}

// announced handles a switch announced by the sentinel at addr. If the switch leads away from the known master, and
// the new master confirms the role, announced is done. Otherwise the announcement may be old, and announced asks the
// sentinel.
func (f *Resolver) announced(ctx context.Context, sentinel string, e announcement) {
	m, _, _ := f.current()
	if e.from == m.announced && e.to != m.announced && f.check(ctx, m, e.to, m.epoch+1) == nil {
		return
	}
	f.wake(sentinel)
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

// wake makes Watch ask at once, beginning with the given sentinel.
func (f *Resolver) wake(sentinel string) {
	select {
	case f.pollNow <- sentinel:
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
			wait = backoff(failed-1, 2*minRoundPause, max(f.cfg.PollInterval, maxRoundPause))
		} else if wait <= 0 {
			wait = forever
		}
		timer.Reset(wait)
		first := ""
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
func (f *Resolver) poll(ctx context.Context, n int, first string) error {
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
			return netfail.Ended(ctx)
		case err != nil:
			f.demote(addr)
		case a.older(m):
			aside = aside.newer(a)
		default:
			return f.apply(ctx, m, a)
		}
	}
	if aside.master != "" {
		return f.apply(ctx, m, aside)
	}
	return err
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

// announcement is a change of the master announced by a sentinel.
type announcement struct{ from, to string }

// news passes events from the reader of a subscription to handleNews.
type news struct {
	wake chan struct{} // holds a token while news are waiting

	mu        sync.Mutex // guards the following
	confirmed bool
	ask       bool         // ask a sentinel: after the confirmation, before which messages were lost, or after a hint
	heard     bool         // any value was read
	latest    announcement // the last announcement
	lost      bool
	err       error
}

// read reads until the connection ends.
func (s *news) read(stream Stream, name string) {
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

// take returns and clears the news: the last announcement, whether to ask a sentinel, whether a value was read, and
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
