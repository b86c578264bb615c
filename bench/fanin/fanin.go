package fanin

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// Rate is how many messages are published in a second, to Subscriptions channels in turn.
const (
	Rate          = 10000
	Subscriptions = 1000
)

// Open subscribes to each channel by itself and returns when the server has confirmed them. Deliver is called with the
// payload of each message, by any goroutine. Close ends all goroutines, if the library can.
type Open func(env measure.Env, channels []string, deliver func(payload string)) (close func(), err error)

// Work measures a library in process 0 and publishes in process 1, or publishes itself without a second process.
func Work(open Open) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		if env.Proc == 1 {
			return publisher(env)
		}
		return subscribed(open, env)
	}
}

func channels() []string {
	list := make([]string, Subscriptions)
	for i := range list {
		list[i] = fmt.Sprint("bench:channel:", i)
	}
	return list
}

// shards keep deliveries by many goroutines apart.
const shards = 64

func subscribed(open Open, env measure.Env) (measure.Report, error) {
	var next, measuring atomic.Int64
	var tallies [shards]struct {
		sync.Mutex
		measure.Histogram
	}
	deliver := func(payload string) {
		now := measure.Now()
		sent, err := strconv.ParseInt(payload, 10, 64)
		if err != nil || sent < measuring.Load() || measuring.Load() == 0 {
			return
		}
		t := &tallies[next.Add(1)%shards]
		t.Lock()
		t.Record(time.Duration(now - sent))
		t.Unlock()
	}
	closeAll, err := open(env, channels(), deliver)
	if err != nil {
		return measure.Report{}, err
	}
	defer closeAll()
	var r measure.Report
	m := measure.Start(env)
	measuring.Store(measure.Now())
	if env.Procs > 1 {
		time.Sleep(env.Length.For)
	} else if err := publish(env, env.Length.Ops, 0); err != nil {
		return r, err
	}
	if env.Length.Ops > 0 {
		wait(&next, int64(env.Length.Ops))
	}
	m.Stop(&r)
	measuring.Store(0)
	r.Ops = next.Load()
	r.Set("delivered %", 100*float64(r.Ops)/(Rate*r.Seconds))
	for i := range tallies {
		tallies[i].Lock()
		r.Latency.Add(&tallies[i].Histogram)
		tallies[i].Unlock()
	}
	return r, nil
}

// wait returns after n messages, or after a time that suffices for n messages.
func wait(n *atomic.Int64, want int64) {
	for end := time.Now().Add(10 * time.Second); n.Load() < want && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

func publisher(env measure.Env) (measure.Report, error) {
	m := measure.Start(env)
	err := publish(env, 0, env.Length.For)
	m.Stop(new(measure.Report)) // the cost of publishing counts for nobody
	return measure.Report{}, err
}

// publish sends at the rate, by the millisecond: messages in all, or for a while.
func publish(env measure.Env, messages int, long time.Duration) error {
	c, err := floor.Dial(env.Network, env.Addr, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	const atOnce = Rate / 1000
	list := channels()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(long)
	for n := 0; n < messages || messages == 0 && time.Now().Before(end); {
		var batch []byte
		for range atOnce {
			batch = append(batch, floor.Request("PUBLISH", list[n%len(list)], strconv.FormatInt(measure.Now(), 10))...)
			n++
		}
		if err := c.DoAll(batch, atOnce); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

var errRefused = errors.New("fanin: not subscribed")
