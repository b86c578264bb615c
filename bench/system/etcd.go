package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Etcd is a private etcd server, with its data in the cheapest place.
type Etcd struct {
	Endpoint string
	Version  string

	dir string
	cmd *exec.Cmd
}

// ErrNoEtcd: etcd is not installed.
var ErrNoEtcd = errors.New("system: etcd is not in PATH")

// HasEtcd says whether StartEtcd has a program to start.
func HasEtcd() bool {
	_, err := exec.LookPath("etcd")
	return err == nil
}

// StartEtcd starts a server on cpus and returns at its first answer. Stop stops the server.
func StartEtcd(cpus ...int) (*Etcd, error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return nil, ErrNoEtcd
	}
	parent := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		parent = "/dev/shm" // no disk in the figures
	}
	dir, err := os.MkdirTemp(parent, "lockwire-bench-etcd-")
	if err != nil {
		return nil, err
	}
	e := &Etcd{dir: dir}
	err = e.configure(program)
	if err == nil {
		err = e.start(cpus)
	}
	if err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// configure chooses two ports that are free afterwards.
func (e *Etcd) configure(program string) error {
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		urls[i] = "http://" + l.Addr().String()
		defer l.Close()
	}
	if version, err := exec.Command(program, "--version").Output(); err == nil {
		first, _, _ := strings.Cut(string(version), "\n")
		e.Version = strings.TrimPrefix(first, "etcd Version: ")
	}
	e.Endpoint = strings.TrimPrefix(urls[0], "http://")
	e.cmd = exec.Command(program, "--data-dir", e.dir, "--log-level", "error",
		"--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
		"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "default="+urls[1])
	return nil
}

func (e *Etcd) start(cpus []int) error {
	if err := Start(e.cmd, cpus...); err != nil {
		e.cmd = nil
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		c, err := net.Dial("tcp", e.Endpoint)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("system: etcd does not answer: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// CPU is how many seconds the server has used.
func (e *Etcd) CPU() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * tick
}

// Stop ends the server and removes its files.
func (e *Etcd) Stop() {
	if e.cmd != nil && e.cmd.Process != nil {
		e.cmd.Process.Kill()
		e.cmd.Wait()
	}
	os.RemoveAll(e.dir)
}
