package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// signals receives the signals for the command. Until a program runs, a signal ends ctx; from then on signals go to the program.
type signals struct {
	ctx    context.Context // ends with an interrupted as its cause
	cancel context.CancelCauseFunc
	in     chan os.Signal
	wg     sync.WaitGroup

	mu   sync.Mutex      // guards the following
	pass func(os.Signal) // nil while no program runs
	last os.Signal       // the last signal to end the command
}

// interrupted is the error of a command ended by a signal.
type interrupted struct{ signal os.Signal }

func (e interrupted) Error() string { return e.signal.String() }

// catchSignals leaves the signals out that this process was started to ignore, as nohup and a shell in the background do: then the
// program ignores them, too.
func catchSignals() *signals {
	s := &signals{in: make(chan os.Signal, 16)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	signal.Notify(s.in, slices.DeleteFunc(slices.Clone(passedSignals), signal.Ignored)...)
	s.wg.Go(s.deliver)
	return s
}

func (s *signals) deliver() {
	for sig := range s.in {
		s.mu.Lock()
		if s.pass != nil {
			s.pass(sig)
		}
		if ends(sig) && (s.pass == nil || sig == os.Interrupt || sig == syscall.SIGTERM) { // HUP may mean a reload
			s.last = sig
			s.endLocked()
		}
		s.mu.Unlock()
	}
}

// endLocked ends ctx after a signal to end the command, unless a program runs.
func (s *signals) endLocked() {
	if s.pass == nil && s.last != nil {
		s.cancel(interrupted{s.last})
	}
}

// passTo calls start, and passes all later signals to the function returned by start. Signals during start are passed too,
// and so is an earlier signal that has ended ctx.
func (s *signals) passTo(start func() (pass func(os.Signal), err error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pass, err := start()
	if err != nil {
		return err
	}
	s.pass = pass
	if s.last != nil {
		pass(s.last)
	}
	return nil
}

// passNoMore makes signals end ctx again. A signal to end the command that was passed on ends ctx now.
func (s *signals) passNoMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = nil
	s.endLocked()
}

func (s *signals) stop() {
	signal.Stop(s.in)
	close(s.in)
	s.wg.Wait()
	s.cancel(nil)
}
