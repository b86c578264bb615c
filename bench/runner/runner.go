package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/bench/catalog"
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/report"
	"github.com/lockwire/lockwire/bench/system"
)

// Runner runs cases against its own servers.
type Runner struct {
	Rounds int
	Speed  float64 // divides the length of measurements
	Log    io.Writer

	cpus   []int
	redis  []*system.Redis                 // the first for every case, the others for locks on several servers
	delays map[time.Duration]*system.Delay // by their round trip
	etcd   *system.Etcd                    // nil if not installed
}

// Open starts the servers. etcd is started if etcd is installed and this program was built for etcd.
func (r *Runner) Open() error {
	r.cpus = system.CPUs()
	if err := r.supply(1); err != nil {
		return err
	}
	var err error
	if r.etcd, err = system.StartEtcd(r.serverCPU()...); err != nil && !errors.Is(err, system.ErrNoEtcd) {
		r.redis[0].Stop()
		return err
	}
	return nil
}

// Close stops the servers.
func (r *Runner) Close() {
	for _, d := range r.delays {
		d.Stop()
	}
	for _, server := range r.redis {
		server.Stop()
	}
	if r.etcd != nil {
		r.etcd.Stop()
	}
}

// serversOf are the servers of a case.
func (r *Runner) serversOf(c catalog.Case) []*system.Redis { return r.redis[:max(c.Servers, 1)] }

// supply starts servers until there are n.
func (r *Runner) supply(n int) error {
	for len(r.redis) < n {
		server, err := system.StartRedis(r.serverCPU()...)
		if err != nil {
			return err
		}
		r.redis = append(r.redis, server)
	}
	return nil
}

// away returns an address with a longer round trip to the server.
func (r *Runner) away(roundTrip time.Duration) (string, error) {
	if d := r.delays[roundTrip]; d != nil {
		return d.Addr, nil
	}
	d, err := system.StartDelay(r.redis[0].TCP, roundTrip)
	if err != nil {
		return "", err
	}
	if r.delays == nil {
		r.delays = map[time.Duration]*system.Delay{}
	}
	r.delays[roundTrip] = d
	return d.Addr, nil
}

// Versions are the versions of the servers.
func (r *Runner) Versions() map[string]string {
	v := map[string]string{"server": r.redis[0].Version}
	if r.etcd != nil {
		v["etcd server"] = r.etcd.Version
	}
	return v
}

// Pinned reports whether processes can be kept on chosen CPUs.
func (r *Runner) Pinned() bool { return len(r.cpus) > 1 }

func (r *Runner) serverCPU() []int {
	if len(r.cpus) < 2 {
		return nil
	}
	return r.cpus[:1]
}

func (r *Runner) clientCPU(c catalog.Case) []int {
	switch {
	case len(r.cpus) < 2:
		return nil
	case c.Place == catalog.SameCPU:
		return r.cpus[:1]
	case c.Place == catalog.Both:
		return r.cpus[:2]
	case c.Place == catalog.Free:
		return r.cpus
	}
	return r.cpus[1:2]
}

// Run measures a case.
func (r *Runner) Run(c catalog.Case) report.Case {
	result := report.Case{
		Group: c.Group, Name: c.Name, Title: c.Title, Place: string(c.Place),
		When: time.Now(), Rounds: r.Rounds, Load: system.LoadAverage(),
	}
	if len(r.cpus) < 2 {
		result.Place = "not pinned"
	}
	if c.TLS && r.redis[0].TLS == "" {
		fmt.Fprintf(r.Log, "%s: the server is without TLS\n", c.Name)
		return result
	}
	for _, m := range c.Metrics {
		result.Metrics = append(result.Metrics, report.Metric{Name: m.Name, Lower: m.Lower})
	}
	var contenders []catalog.Contender
	for _, x := range c.Contenders {
		if !x.Etcd || r.etcd != nil {
			contenders = append(contenders, x)
		}
	}
	rounds := make([][]map[string]float64, len(contenders))
	result.Rows = make([]report.Row, len(contenders))
	var foreign, measurements float64
	for range r.Rounds {
		for _, i := range rand.Perm(len(contenders)) {
			numbers, others, err := r.once(c, contenders[i])
			if err != nil {
				result.Rows[i].Errors = append(result.Rows[i].Errors, err.Error())
				fmt.Fprintf(r.Log, "%s, %s: %v\n", c.Name, contenders[i].Name, err)
				continue
			}
			foreign += others
			measurements++
			rounds[i] = append(rounds[i], numbers)
		}
	}
	for i, x := range contenders {
		result.Rows[i].Name, result.Rows[i].Kind = x.Name, string(x.Kind)
		result.Rows[i].Numbers = report.Collect(rounds[i])
	}
	result.Foreign = foreign / max(measurements, 1)
	return result
}

// grace is the time of a measurement besides its length: preparing, and ending.
const grace = 60 * time.Second

// once runs a contender in new processes. It also returns the number of CPUs kept busy meanwhile by foreign processes.
func (r *Runner) once(c catalog.Case, x catalog.Contender) (map[string]float64, float64, error) {
	if err := r.supply(c.Servers); err != nil {
		return nil, 0, err
	}
	for _, server := range r.redis {
		if err := server.Empty(); err != nil {
			return nil, 0, err
		}
	}
	if err := r.place(c); err != nil {
		return nil, 0, err
	}
	length := c.Length
	length.Warm = time.Duration(float64(length.Warm) / r.Speed)
	length.For = time.Duration(float64(length.For) / r.Speed)
	ctx, cancel := context.WithTimeout(context.Background(), length.Warm+length.For+grace)
	defer cancel()
	order := Order{Case: c.Name, Contender: x.Name, Network: "tcp", Addr: r.redis[0].TCP, Procs: max(c.Procs, 1), Length: length}
	for _, server := range r.serversOf(c)[1:] {
		order.Further = append(order.Further, server.TCP)
	}
	if c.Unix {
		order.Network, order.Addr = "unix", r.redis[0].Unix
	}
	if c.TLS {
		order.Addr, order.CA = r.redis[0].TLS, r.redis[0].CA
	}
	if r.etcd != nil {
		order.Etcd = r.etcd.Endpoint
	}
	var procs []*process
	defer func() {
		for _, p := range procs {
			p.kill()
		}
	}()
	for order.Proc = range order.Procs {
		if order.Proc == order.Procs-c.Far {
			var err error
			if order.Addr, err = r.away(c.RoundTrip); err != nil {
				return nil, 0, err
			}
		}
		p, err := start(ctx, order, r.clientCPU(c))
		if err != nil {
			return nil, 0, err
		}
		procs = append(procs, p)
	}
	return r.collect(c, x, procs)
}

// place puts the servers on the CPUs of the case.
func (r *Runner) place(c catalog.Case) error {
	cpus := r.serverCPU()
	if c.Place == catalog.Free {
		cpus = r.cpus
	}
	for _, server := range r.redis {
		if err := system.Pin(server.PID(), cpus...); err != nil {
			return err
		}
	}
	return nil
}

// collect lets processes measure at the same time.
func (r *Runner) collect(c catalog.Case, x catalog.Contender, procs []*process) (map[string]float64, float64, error) {
	each := func(do func(*process) error) error {
		for _, p := range procs {
			if err := do(p); err != nil {
				return err
			}
		}
		return nil
	}
	if err := each(func(p *process) error { return p.expect(ready) }); err != nil {
		return nil, 0, err
	}
	before, err := r.look(c, x)
	if err != nil {
		return nil, 0, err
	}
	busy, begin := system.BusySeconds(), time.Now()
	if err := each((*process).begin); err != nil {
		return nil, 0, err
	}
	if err := each(func(p *process) error { return p.expect(done) }); err != nil {
		return nil, 0, err
	}
	took, busy := time.Since(begin).Seconds(), system.BusySeconds()-busy
	after, err := r.look(c, x)
	if err != nil {
		return nil, 0, err
	}
	outcome := catalog.Outcome{Case: c, Contender: x, Server: after.Since(before)}
	busy -= outcome.Server.CPU
	err = each(func(p *process) error {
		report, err := p.report()
		outcome.Reports = append(outcome.Reports, report)
		busy -= report.CPU
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return c.Numbers(outcome), max(busy, 0) / took, nil
}

// look reads the counters of a contender's servers.
func (r *Runner) look(c catalog.Case, x catalog.Contender) (system.Usage, error) {
	if x.Etcd {
		return system.Usage{CPU: r.etcd.CPU()}, nil
	}
	return usage(r.serversOf(c))
}

// usage is the work of all servers.
func usage(servers []*system.Redis) (system.Usage, error) {
	sum := system.Usage{Commands: map[string]int64{}}
	for _, server := range servers {
		u, err := server.Usage()
		if err != nil {
			return sum, err
		}
		sum = sum.Plus(u)
	}
	return sum, nil
}

// Try runs a contender of a case in this process, as a test, for as many operations as length says. servers are as many as the case has.
func Try(c catalog.Case, x catalog.Contender, servers []*system.Redis, length measure.Length) (map[string]float64, error) {
	redis := servers[0]
	env := measure.Env{Network: "tcp", Addr: redis.TCP, Procs: 1, Length: length}
	for _, server := range servers[1:] {
		env.Further = append(env.Further, server.TCP)
	}
	if c.Unix {
		env.Network, env.Addr = "unix", redis.Unix
	}
	if c.TLS {
		var err error
		if env.TLS, err = system.TLSConfig(redis.CA); err != nil {
			return nil, err
		}
		env.Addr = redis.TLS
	}
	var before, after system.Usage
	var errs [2]error
	env.Begin = func() { before, errs[0] = usage(servers) }
	env.End = func() { after, errs[1] = usage(servers) }
	r, err := x.Work(env)
	if err := errors.Join(err, errs[0], errs[1]); err != nil {
		return nil, err
	}
	c.Procs = 1
	return c.Numbers(catalog.Outcome{Case: c, Contender: x, Reports: []measure.Report{r}, Server: after.Since(before)}), nil
}
