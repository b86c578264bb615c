package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// process is a worker as seen by the demo.
type process struct {
	number int // from 0
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	trace  strings.Builder // standard error; read after the end of the process
}

// event is a report of a worker, or the worker's end.
type event struct {
	worker int
	report report
	ended  bool
	err    error // of an ended worker: the failure, nil for status 0
}

// startProcess runs this program again as a worker. The worker's reports go to events, the last with ended; the caller must
// receive all events. The worker ends on an order, and at the end of this process, because its input ends then.
func startProcess(number int, a assignment, events chan<- event) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: number, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), workerVariable+"=1")
	p.cmd.Stderr = &p.trace
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.orders = in, json.NewEncoder(in)
	go p.listen(out, events)
	if err := p.orders.Encode(a); err != nil {
		return p, fmt.Errorf("worker %d: %w", number+1, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// listen passes on the worker's reports until its end.
func (p *process) listen(out io.Reader, events chan<- event) {
	reports := json.NewDecoder(out)
	for {
		var r report
		if reports.Decode(&r) != nil {
			break // the worker has ended, perhaps in the middle of a line
		}
		events <- event{worker: p.number, report: r}
	}
	io.Copy(io.Discard, out)
	err := p.cmd.Wait()
	if trace := strings.TrimSpace(p.trace.String()); trace != "" {
		err = errors.Join(err, errors.New(trace))
	}
	events <- event{worker: p.number, ended: true, err: err}
}

// tell gives the worker an order, without waiting for the effect.
func (p *process) tell(o order) error { return p.orders.Encode(o) }

// finish lets the worker finish its work and end.
func (p *process) finish() { p.in.Close() }

// kill ends the worker at once, by SIGKILL on systems with signals.
func (p *process) kill() error { return p.cmd.Process.Kill() }
