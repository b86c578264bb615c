package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// The data of the jobs.
const (
	Key       = "bench:key"
	BatchSize = 100
	Argument  = "argument"

	// Source is a script with the least possible work.
	Source = "return #ARGV[1] + #KEYS"
)

// Client is a connected library. Callers share a client as the library intends.
type Client interface {
	// Caller returns the way in for one more goroutine, all of whose calls are made under ctx.
	Caller(ctx context.Context) (Caller, error)
	Close()
}

// Setup is the server and the data of a client.
type Setup struct {
	Network, Addr string
	TLS           *tls.Config // nil: without
	Callers       int         // goroutines that will use the client
	Value         string      // the stored value
}

// Caller does the jobs. A wrong reply is an error. A Caller is for a single goroutine.
type Caller interface {
	Get() error
	Set() error
	Eval() error   // EVALSHA of a digest known to the server
	Script() error // the library's own helper for scripts
	Batch() error  // BatchSize GETs
}

// Open connects a client.
type Open func(s Setup) (Client, error)

// Job names a method of a Caller.
type Job string

// The jobs.
const (
	Get    Job = "get"
	Set    Job = "set"
	Eval   Job = "eval"
	Script Job = "script"
	Batch  Job = "batch"
)

func (j Job) of(c Caller) func() error {
	switch j {
	case Get:
		return c.Get
	case Set:
		return c.Set
	case Eval:
		return c.Eval
	case Script:
		return c.Script
	case Batch:
		return c.Batch
	}
	return func() error { return fmt.Errorf("no job %q", string(j)) }
}

// Work measures a job with so many callers and a value of so many bytes. The context of each caller can end, as those of
// servers do.
func Work(open Open, job Job, callers, size int) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		s := Setup{Network: env.Network, Addr: env.Addr, TLS: env.TLS, Callers: callers, Value: strings.Repeat("v", size)}
		if err := prepare(s); err != nil {
			return measure.Report{}, err
		}
		client, err := open(s)
		if err != nil {
			return measure.Report{}, err
		}
		defer client.Close()
		weight := 1
		if job == Batch {
			weight = BatchSize
		}
		var ends []context.CancelFunc
		defer func() {
			for _, end := range ends {
				end()
			}
		}()
		return measure.Callers(env, callers, weight, func(int) (func() error, error) {
			ctx, cancel := context.WithCancel(background)
			ends = append(ends, cancel)
			caller, err := client.Caller(ctx)
			if err != nil {
				return nil, err
			}
			return job.of(caller), nil
		})
	}
}

// prepare stores the data of the jobs.
func prepare(s Setup) error {
	c, err := floor.Dial(s.Network, s.Addr, s.TLS)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Do(floor.Request("SET", Key, s.Value)); err != nil {
		return err
	}
	_, err = c.Do(floor.Request("SCRIPT", "LOAD", Source))
	return err
}

var errReply = errors.New("clients: not the reply that was expected")

// expect is err, or an error for a wrong reply.
func expect(right bool, err error) error {
	if err == nil && !right {
		return errReply
	}
	return err
}

// scriptResult is the result of Source.
const scriptResult = len(Argument) + 1
