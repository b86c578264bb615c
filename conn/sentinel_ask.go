package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// answer is what a sentinel says about the master and those who watch it.
type answer struct {
	master    string   // as announced; never empty
	epoch     int64    // of its configuration; below 0: it does not say
	sentinels []string // the others, where they are dialled
}

// older reports whether the answer is from before the change that led to m.
func (a answer) older(m master) bool { return a.epoch >= 0 && a.epoch < m.epoch }

// newer returns the one of two answers that has the larger epoch.
func (a answer) newer(b answer) answer {
	if a.master == "" || b.epoch > a.epoch {
		return b
	}
	return a
}

// question asks the sentinel at addr who is the master, and keeps what it says about other sentinels. An error is an *Error.
func (f *finder) question(ctx context.Context, addr string) (answer, error) {
	name := f.cfg.Sentinel.Master
	replies, err := f.put(ctx, addr,
		resp.Cmd("SENTINEL", "get-master-addr-by-name", name),
		resp.Cmd("SENTINEL", "master", name),
		resp.Cmd("SENTINEL", "sentinels", name))
	if err != nil {
		return answer{}, err
	}
	a, err := f.understand(replies)
	if err != nil {
		return answer{}, &Error{Op: "dial", Addr: addr, Err: err}
	}
	f.learn(addr, a)
	return a, nil
}

// put sends questions to the sentinel at addr, all at once on a connection of their own, and returns the replies. The wait is
// bounded by Sentinel.Timeout. An error is an *Error.
func (f *finder) put(ctx context.Context, addr string, questions ...resp.Command) ([]resp.Value, error) {
	s := &f.cfg.Sentinel
	cause := fmt.Errorf("no answer of the sentinel within %v: %w", s.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, cause)
	defer cancel()
	stream, err := f.sentinel(ctx, addr)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = stream.Close()
	})
	replies, err := converse(ctx, stream, questions)
	if !release() {
		<-closed
		err = ended(ctx)
	}
	_ = stream.Close()
	if err != nil {
		return nil, &Error{Op: "dial", Addr: addr, Err: err}
	}
	return replies, nil
}

// sentinel connects to the sentinel at addr.
func (f *finder) sentinel(ctx context.Context, addr string) (*Stream, error) {
	cfg := f.cfg.sentinel(addr)
	s, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newStream(s, cfg), nil
}

// converse puts all questions at once.
func converse(ctx context.Context, stream *Stream, questions []resp.Command) ([]resp.Value, error) {
	if err := stream.Write(ctx, questions...); err != nil {
		return nil, err
	}
	replies := make([]resp.Value, 0, len(questions))
	for len(replies) < len(questions) {
		v, err := stream.Read()
		if err != nil {
			return nil, err
		}
		if v.Kind() != resp.Push {
			replies = append(replies, v)
		}
	}
	return replies, nil
}

// understand reads the replies to what question asks.
func (f *finder) understand(replies []resp.Value) (answer, error) {
	if err := replies[0].Err(); err != nil {
		return answer{}, fmt.Errorf("SENTINEL: %w", err)
	}
	a := answer{master: announcedAt(replies[0].At(0), replies[0].At(1)), epoch: -1}
	if a.master == "" {
		return answer{}, errUnknownMaster
	}
	state, _ := replies[1].Pairs() // without an epoch it is not one to be preferred
	for name, value := range state {
		if text, err := name.Text(); err == nil && text == "config-epoch" {
			if n, err := value.Int(); err == nil && n >= 0 {
				a.epoch = n
			}
		}
	}
	for other := range replies[2].All() {
		if addr := announcedIn(other); addr != "" && len(a.sentinels) < maxSentinels {
			a.sentinels = append(a.sentinels, f.cfg.Sentinel.mapped(addr))
		}
	}
	return a, nil
}

// announcedAt makes an address of a host and a port, or "" if they are none.
func announcedAt(host, port resp.Value) string {
	h, err := host.Text()
	if err != nil {
		return ""
	}
	p, err := port.Text()
	if err != nil {
		return ""
	}
	return announced(h, p)
}

// announcedIn makes an address of what is said about a sentinel, or "" if there is none.
func announcedIn(v resp.Value) string {
	var host, port resp.Value
	pairs, _ := v.Pairs()
	for name, value := range pairs {
		switch text, _ := name.Text(); text {
		case "ip":
			host = value
		case "port":
			port = value
		}
	}
	return announcedAt(host, port)
}

// pace spaces events so that there are 15 in a second, after some at the beginning: never more than 20 in any second.
type pace struct {
	mu   sync.Mutex
	next time.Time // the time of the next one if there were no credit
}

const (
	paceInterval = time.Second / 15
	paceCredit   = 4
)

// take returns how long to wait before the next event, which is accounted for.
func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-paceCredit * paceInterval); p.next.Before(earliest) {
		p.next = earliest
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(paceInterval)
	return max(wait, 0)
}

// wait waits for the next event to be due.
func (p *pace) wait(ctx context.Context, changed <-chan struct{}) error {
	return await(ctx, changed, p.take(time.Now()))
}

// await waits for d, unless ctx ends or another master is found.
func await(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	select {
	case <-changed:
		return errSwitched
	case <-ctx.Done():
		return ended(ctx)
	default:
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-changed:
		return errSwitched
	case <-ctx.Done():
		return ended(ctx)
	}
}
