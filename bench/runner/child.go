package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lockwire/lockwire/bench/catalog"
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/system"
)

// Order is the task of a measuring process, its only argument behind Flag, as JSON.
type Order struct {
	Case, Contender     string
	Network, Addr, Etcd string
	Further             []string // addresses of further servers
	CA                  string   // of the server's certificate, as PEM; "": without TLS
	Proc, Procs         int
	Length              measure.Length
}

// Flag is the first argument of a measuring process.
const Flag = "-measure"

const (
	ready = "ready"
	done  = "done"
)

// Child is the main function of a measuring process.
func Child(order string, stdin io.Reader, stdout io.Writer) error {
	var o Order
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	work, err := find(o.Case, o.Contender)
	if err != nil {
		return err
	}
	secure, err := system.TLSConfig(o.CA)
	if err != nil {
		return err
	}
	in := bufio.NewReader(stdin)
	var broken error
	report, err := work(measure.Env{
		Network: o.Network, Addr: o.Addr, Further: o.Further, TLS: secure, Etcd: o.Etcd, Proc: o.Proc, Procs: o.Procs, Length: o.Length,
		Begin: func() {
			fmt.Fprintln(stdout, ready)
			_, broken = in.ReadString('\n')
		},
		End: func() { fmt.Fprintln(stdout, done) },
	})
	if err := errors.Join(err, broken); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(report)
}

func find(name, contender string) (measure.Work, error) {
	for _, c := range catalog.Cases() {
		if c.Name != name {
			continue
		}
		for _, x := range c.Contenders {
			if x.Name == contender {
				return x.Work, nil
			}
		}
	}
	return nil, fmt.Errorf("runner: no contender %q in a case %q", contender, name)
}
