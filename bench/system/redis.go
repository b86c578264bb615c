package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Redis is a private, empty server without persistence, on a TCP port and on a unix socket.
type Redis struct {
	TCP, Unix string
	TLS, CA   string // address, and PEM of the certificate's authority; "" if the server is without TLS
	Version   string

	dir     string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
	control *conn.Pool
}

// ErrNoRedis: no program to start.
var ErrNoRedis = errors.New("system: neither redis-server nor valkey-server is in PATH")

// Program is the measured server: the first of LOCKWIRE_REDIS_SERVER, or the program in PATH.
func Program() (string, error) {
	if list := os.Getenv("LOCKWIRE_REDIS_SERVER"); list != "" {
		first, _, _ := strings.Cut(list, ",")
		return first, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoRedis
}

// StartRedis starts a server on cpus and returns at its first answer. Stop stops the server.
func StartRedis(cpus ...int) (*Redis, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	r, err := startRedis(program, true, cpus)
	if errors.Is(err, errEnded) { // of a server built without TLS
		r, err = startRedis(program, false, cpus)
	}
	return r, err
}

func startRedis(program string, secure bool, cpus []int) (*Redis, error) {
	dir, err := os.MkdirTemp("", "lockwire-bench-")
	if err != nil {
		return nil, err
	}
	r := &Redis{dir: dir, Unix: filepath.Join(dir, "socket")}
	if err := r.start(program, secure, cpus); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

var errEnded = errors.New("system: the server has ended")

func (r *Redis) start(program string, secure bool, cpus []int) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	r.TCP = addr
	args := []string{"--bind", "127.0.0.1", "--port", portOf(r.TCP), "--unixsocket", r.Unix,
		"--save", "", "--appendonly", "no", "--dir", r.dir, "--maxclients", "10000"}
	if secure {
		if r.TLS, err = freeAddr(); err != nil {
			return err
		}
		if r.CA, err = writeCertificate(r.dir); err != nil {
			return err
		}
		args = append(args, "--tls-port", portOf(r.TLS), "--tls-auth-clients", "no", "--tls-ca-cert-file", filepath.Join(r.dir, certFile),
			"--tls-cert-file", filepath.Join(r.dir, certFile), "--tls-key-file", filepath.Join(r.dir, keyFile))
	}
	r.cmd = exec.Command(program, args...)
	if err := Start(r.cmd, cpus...); err != nil {
		r.cmd = nil
		return err
	}
	r.ended = make(chan struct{})
	go func() { r.cmd.Wait(); close(r.ended) }()
	return r.connect()
}

// connect returns when the server answers.
func (r *Redis) connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	for r.control == nil {
		select {
		case <-r.ended:
			return errEnded
		default:
		}
		r.control, err = conn.Open(ctx, conn.Config{Network: "unix", Addr: r.Unix, PingInterval: -1})
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("system: the server does not answer: %w", err)
		}
	}
	info, err := r.info(ctx, "server")
	for _, name := range []string{"redis_version", "valkey_version"} {
		if v := info[name]; v != "" {
			r.Version = strings.TrimSuffix(name, "_version") + " " + v
		}
	}
	return err
}

// PID is the process id of the server.
func (r *Redis) PID() int { return r.cmd.Process.Pid }

// Stop ends the server and removes its files.
func (r *Redis) Stop() {
	if r.control != nil {
		r.control.Close()
	}
	if r.cmd != nil {
		r.cmd.Process.Kill()
		<-r.ended
	}
	os.RemoveAll(r.dir)
}

// Empty removes all data and scripts.
func (r *Redis) Empty() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := r.control.Do(ctx, "FLUSHALL"); err != nil {
		return err
	}
	_, err := r.control.Do(ctx, "SCRIPT", "FLUSH")
	return err
}

// Usage is the work of a server between two looks.
type Usage struct {
	CPU      float64          // seconds
	Reads    int64            // calls of read
	Commands map[string]int64 // by name, including commands called by scripts
	Clients  int64            // connections at the first look, without the look's own
	Memory   float64          // bytes in use
}

// Usage looks at the server.
func (r *Redis) Usage() (Usage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	u := Usage{Commands: map[string]int64{}}
	for _, section := range []string{"cpu", "stats", "clients", "memory", "commandstats"} {
		info, err := r.info(ctx, section)
		if err != nil {
			return u, err
		}
		for name, value := range info {
			u.take(name, value)
		}
	}
	return u, nil
}

func (u *Usage) take(name, value string) {
	n, _ := strconv.ParseFloat(value, 64)
	switch name {
	case "used_cpu_sys", "used_cpu_user":
		u.CPU += n
	case "total_reads_processed":
		u.Reads = int64(n)
	case "connected_clients":
		u.Clients = int64(n)
	case "used_memory":
		u.Memory = n
	}
	if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		u.Commands[command], _ = strconv.ParseInt(calls, 10, 64)
	}
}

// Plus returns the work of two servers.
func (u Usage) Plus(v Usage) Usage {
	sum := Usage{CPU: u.CPU + v.CPU, Reads: u.Reads + v.Reads, Clients: u.Clients + v.Clients, Memory: u.Memory + v.Memory,
		Commands: maps.Clone(u.Commands)}
	for name, n := range v.Commands {
		sum.Commands[name] += n
	}
	return sum
}

// Since returns what was used since an earlier look. The commands of looking are left out.
func (u Usage) Since(before Usage) Usage {
	d := Usage{CPU: u.CPU - before.CPU, Reads: u.Reads - before.Reads, Clients: before.Clients - 1,
		Memory: u.Memory - before.Memory, Commands: map[string]int64{}}
	for name, n := range u.Commands {
		if n -= before.Commands[name]; n != 0 && name != "info" {
			d.Commands[name] = n
		}
	}
	return d
}

func (r *Redis) info(ctx context.Context, section string) (map[string]string, error) {
	v, err := r.control.Do(ctx, "INFO", section)
	if err != nil {
		return nil, err
	}
	text, err := v.Text()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
