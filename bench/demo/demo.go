package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/lock"
)

var errNotWell = errors.New("not all is well")

const (
	// refresh is the interval of questions to the server for the lock's holder.
	refresh = 100 * time.Millisecond
	// answerLimit limits the time of an answer.
	answerLimit = time.Second
	// endGrace is the time for workers to finish before a kill.
	endGrace = 3 * time.Second
)

// plan is how long each part of the run takes. In between, the lease of the worker that is killed runs out.
type plan struct{ turns, stay, after, sprint time.Duration }

func (s settings) plan() plan {
	stay := s.lease * 3 / 2 // without renewals the lease would have ended; the end is between two renewals
	free := s.length - stay - s.lease
	return plan{turns: free / 2, stay: stay, after: free / 8, sprint: free * 3 / 8}
}

// demo is a single run. All of its data belongs to the goroutine that called run; further goroutines belong to the processes
// and send events.
type demo struct {
	settings
	screen screen
	server *server
	events chan event
	crew   []*process
	score  *score
	frame  frame
	start  time.Time
}

// run shows a single run on out. It returns nil if all was well, errNotWell if the summary reports a fault, and any further
// error if the run could not finish. No worker is left afterwards.
func run(ctx context.Context, s settings, out screen) (err error) {
	defer out.close()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not at its end after %v", limit))
	defer cancel()
	d := &demo{settings: s, screen: out, events: make(chan event), score: newScore(s.workers), start: time.Now()}
	if d.server, err = openServer(ctx, s.redis, s.lease); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
		defer cancel()
		err = errors.Join(err, d.server.close(ctx))
	}()
	err = d.play(ctx)
	if ended := d.dismiss(); err == nil {
		err = ended
	}
	if err != nil {
		return err
	}
	return d.judge(ctx)
}

// play is the story.
func (d *demo) play(ctx context.Context) error {
	p := d.plan()
	d.frame = newFrame(d.settings, d.server.name)
	d.screen.open(&d.frame)
	if err := d.hire(ctx); err != nil {
		return err
	}
	d.note("%d processes take turns; who has the lock may take it again", d.workers)
	if err := d.tellAll(takeTurns); err != nil {
		return err
	}
	if err := d.watch(ctx, p.turns, nil); err != nil {
		return err
	}
	if err := d.loseOne(ctx, d.crew[1], p.stay); err != nil {
		return err
	}
	if err := d.watch(ctx, p.after, nil); err != nil {
		return err
	}
	d.note("as fast as they can")
	d.frame.beginSprint()
	if err := d.tellAll(sprint); err != nil {
		return err
	}
	return d.watch(ctx, p.sprint, nil)
}

// loseOne has the victim keep the lock for some time, kills it, and waits until another worker has the lock.
func (d *demo) loseOne(ctx context.Context, victim *process, length time.Duration) error {
	if err := victim.tell(stay); err != nil {
		return err
	}
	if err := d.watch(ctx, limit, func() bool { return d.frame.stays }); err != nil {
		return err
	}
	d.note("worker %d has read %d and stays in; its watchdog renews the lease", victim.number+1, d.score.counter)
	if err := d.watch(ctx, length, nil); err != nil {
		return err
	}
	if err := d.strike(ctx, victim); err != nil {
		return err
	}
	k := d.score.killing
	if err := d.watch(ctx, limit, func() bool { return k.complete }); err != nil {
		return err
	}
	d.note("worker %d takes over, %s after the kill", k.by+1, seconds(k.gap()))
	return nil
}

// tellAll gives an order to all living workers.
func (d *demo) tellAll(o order) error {
	for i, p := range d.crew {
		if d.score.workers[i].ended {
			continue
		}
		if err := p.tell(o); err != nil {
			return fmt.Errorf("worker %d: %w", i+1, err)
		}
	}
	return nil
}

// hire starts the workers and waits for the connection of each worker.
func (d *demo) hire(ctx context.Context) error {
	for i := range d.workers {
		p, err := startProcess(i, d.server.assignment, d.events)
		if p != nil {
			d.crew = append(d.crew, p)
			d.score.workers[i].pid = p.pid()
		}
		if err != nil {
			return err
		}
	}
	return d.watch(ctx, limit, d.score.allReady)
}

// strike kills the victim, the holder of the lock.
func (d *demo) strike(ctx context.Context, victim *process) error {
	k := &takeover{victim: victim.number, asked: now()}
	if err := d.look(ctx); err != nil {
		return err
	}
	if d.frame.holder != victim.number {
		return fmt.Errorf("worker %d should have the lock and has not", victim.number+1)
	}
	k.left, k.killed = d.frame.left, now()
	d.score.killing = k
	if err := victim.kill(); err != nil {
		return err
	}
	d.note("worker %d gets SIGKILL before it writes; its lease has %s left", victim.number+1, seconds(k.left))
	return nil
}

// watch lets the run go on and shows it, for some time or until done says so.
func (d *demo) watch(ctx context.Context, length time.Duration, done func() bool) error {
	end := time.NewTimer(length)
	defer end.Stop()
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for done == nil || !done() {
		select {
		case e := <-d.events:
			if err := d.take(ctx, e); err != nil {
				return err
			}
		case <-tick.C:
			d.look(ctx) // the frame shows the fault
			d.screen.draw(d.refreshed())
		case <-end.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// take enters a report of a worker, and shows the lock's holder.
func (d *demo) take(ctx context.Context, e event) error {
	if err := d.score.take(e); err != nil {
		return err
	}
	if e.ended && !d.score.workers[e.worker].killed {
		return fmt.Errorf("worker %d has ended by itself", e.worker+1)
	}
	if e.report.Kind != acquired {
		return nil
	}
	d.frame.stays = d.frame.stays || e.report.Stays
	if d.frame.sprint {
		return nil
	}
	d.look(ctx)
	d.screen.acquired(d.refreshed(), e)
	return nil
}

// look asks the server for the lock's holder.
func (d *demo) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	info, err := d.server.lock.Info(ctx)
	d.frame.silent = err != nil
	d.frame.holder, d.frame.holds, d.frame.left = nobody, 0, 0
	if err == nil && info.Locked {
		d.frame.left = info.Remaining
		d.frame.holder, d.frame.holds = d.holder(info)
	}
	return err
}

func (d *demo) holder(info lock.Info) (worker int, holds int64) {
	for _, h := range info.Holders {
		return d.score.find(h.Owner), h.Holds
	}
	return nobody, 0
}

func (d *demo) refreshed() *frame {
	d.frame.update(time.Since(d.start), d.score)
	return &d.frame
}

func (d *demo) note(format string, args ...any) {
	d.screen.note(d.refreshed(), fmt.Sprintf(format, args...))
}

// dismiss ends the workers, and kills workers still alive after some time. It returns the failure of a worker.
func (d *demo) dismiss() error {
	for _, p := range d.crew {
		p.finish()
	}
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	var failure error
	for !d.score.allEnded(len(d.crew)) {
		select {
		case e := <-d.events:
			if err := d.score.take(e); failure == nil {
				failure = err
			}
		case <-grace.C:
			for _, p := range d.crew {
				p.kill() // an error means that the process has ended
			}
		}
	}
	return failure
}

// judge prints the summary.
func (d *demo) judge(ctx context.Context) error {
	counter, err := d.server.count(ctx)
	if err != nil {
		return err
	}
	end := time.Now()
	step := end.Round(0).Sub(d.start.Round(0)) - end.Sub(d.start)
	checks := d.score.verdict(d.lease, counter, step)
	d.screen.summary(d.refreshed(), checks, d.score.handover())
	if !allWell(checks) {
		return errNotWell
	}
	return nil
}
