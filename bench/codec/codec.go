package codec

import (
	"io"
	"runtime"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

// Decoder returns a function that reads the next reply from src, an endless repetition of the reply with this name; nil if the
// library cannot read so.
type Decoder func(reply string, src io.Reader) func() error

// Work measures a decoder. Report.Ops are replies.
func Work(d Decoder, reply Reply) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		read := d(reply.Name, newEndless(reply.Text))
		if _, err := readFor(read, env.Length.Warm, min(env.Length.Ops, 1)); err != nil {
			return measure.Report{}, err
		}
		var r measure.Report
		runtime.GC()
		m := measure.Start(env)
		n, err := readFor(read, env.Length.For, env.Length.Ops)
		m.Stop(&r)
		r.Ops = n
		return r, err
	}
}

// readFor reads for a while, or ops replies if ops is above 0.
func readFor(read func() error, long time.Duration, ops int) (int64, error) {
	const atOnce = 500 // between looks at the clock
	end := time.Now().Add(long)
	for n := int64(0); ; {
		for range atOnce {
			if err := read(); err != nil {
				return n, err
			}
			n++
			if n == int64(ops) {
				return n, nil
			}
		}
		if ops == 0 && time.Now().After(end) {
			return n, nil
		}
	}
}
