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

// process is a worker as the demo sees it.
type process struct {
	number int // from 0
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	trace  strings.Builder // what it wrote to standard error; read it when it has ended
}

// event is something that a worker says, or its end.
type event struct {
	worker int
	report report
	ended  bool
	err    error // of a worker that has ended: how, unless with status 0
}

// startProcess runs this program again as a worker. What it says goes to events until the one with ended, which is its
// last; somebody has to receive all of them. It ends when told to, and when this process does, since its input ends then.
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

// listen passes on what the worker says until it has ended.
func (p *process) listen(out io.Reader, events chan<- event) {
	reports := json.NewDecoder(out)
	for {
		var r report
		if reports.Decode(&r) != nil {
			break // it has ended, if need be in the middle of a line
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

// tell gives the worker an order. It does not wait for it to be followed.
func (p *process) tell(o order) error { return p.orders.Encode(o) }

// finish lets the worker finish what it does and end.
func (p *process) finish() { p.in.Close() }

// kill ends the worker at once, by SIGKILL where there are signals.
func (p *process) kill() error { return p.cmd.Process.Kill() }
