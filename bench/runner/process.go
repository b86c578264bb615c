package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/system"
)

// process is a measuring process.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// start starts a measuring process, killed at the end of ctx.
func start(ctx context.Context, o Order, cpus []int) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, Flag, string(order))}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReaderSize(out, 1<<20)
	return p, system.Start(p.cmd, cpus...)
}

// expect reads a line, and fails for any line except word.
func (p *process) expect(word string) error {
	line, err := p.stdout.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		return errors.Join(fmt.Errorf("runner: %q instead of %q", strings.TrimSpace(line), word), p.end())
	}
	return nil
}

func (p *process) begin() error {
	_, err := io.WriteString(p.stdin, "begin\n")
	return err
}

// report reads the report, and waits for the process to end.
func (p *process) report() (measure.Report, error) {
	var r measure.Report
	err := json.NewDecoder(p.stdout).Decode(&r)
	return r, errors.Join(err, p.end())
}

// end waits for the process. Its error has the last line of the process's output.
func (p *process) end() error {
	err := p.cmd.Wait()
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		lines := strings.Split(said, "\n")
		return fmt.Errorf("%w: %.200s", err, lines[0])
	}
	return err
}

// kill ends a process that nobody waits for any more.
func (p *process) kill() {
	if p.cmd.Process != nil && p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}
