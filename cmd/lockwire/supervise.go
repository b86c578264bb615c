package main

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// supervisor runs a program while a lease is held, and ends the program before the lease ends. stopBefore of the hold is the
// time of the program between the signals TERM and KILL.
type supervisor struct {
	hold    *hold
	in      *invocation
	lease   *lock.Lease
	process *process
}

// stopPoll is the pause between looks at a program after TERM.
const stopPoll = 10 * time.Millisecond

// run runs the program until it ends, or has to end because ctx has ended, and returns the exit code and the cause of ctx in
// the second case.
func (s *supervisor) run(ctx context.Context, cmd *exec.Cmd) (code int, err error) {
	err = s.in.signals.passTo(func() (func(os.Signal), error) {
		s.process, err = start(cmd)
		return s.process.signal, err
	})
	if err != nil {
		return 0, notStarted(err)
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		code = s.process.wait(func() bool { return ctx.Err() == nil && s.lease.Err() == nil })
		close(ended)
	})
	select {
	case <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
		s.in.event("the program has to end", s.lease, s.hold.why(err))
		s.stop(ended)
	}
	wg.Wait()
	s.in.signals.passNoMore()
	return code, err
}

// stop ends the program and its process group, by TERM and later KILL, and returns when both have ended. After KILL, stop
// waits for the program alone.
func (s *supervisor) stop(ended <-chan struct{}) {
	s.process.terminate()
	begin := time.Now()
	again := time.NewTicker(stopPoll)
	defer again.Stop()
	for {
		over := !time.Now().Before(s.killAt(begin))
		if over {
			s.process.kill()
		}
		select {
		case <-ended:
			if over || !s.process.alive() {
				return
			}
		default:
		}
		<-again.C
	}
}

// killAt returns when a program that got TERM at begin is killed: a fifth of stopBefore, at most a second, before the end of
// the lease, or before the end of stopBefore if that is earlier.
func (s *supervisor) killAt(begin time.Time) time.Time {
	end := begin.Add(s.hold.stopBefore)
	if until := s.lease.ValidUntil(); until.Before(end) {
		end = until
	}
	return end.Add(-min(s.hold.stopBefore/5, time.Second))
}
