package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// answer is a sentinel's description of the master and of the other sentinels.
type answer struct {
	master    string   // announced address; never empty
	epoch     int64    // epoch of the configuration; below 0 if missing
	sentinels []string // addresses to dial of the other sentinels
}

// older reports whether the answer was given before the failover to m.
func (a answer) older(m master) bool { return a.epoch >= 0 && a.epoch < m.epoch }

// newer returns the answer with the larger epoch.
func (a answer) newer(b answer) answer {
	if a.master == "" || b.epoch > a.epoch {
		return b
	}
	return a
}

// question asks the sentinel at addr for the master, and learns the other sentinels. The error is an *Error.
func (f *resolver) question(ctx context.Context, addr string) (answer, error) {
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

// put sends all questions at once to the sentinel at addr, over a new connection, and returns the replies within
// Sentinel.Timeout. The error is an *Error.
func (f *resolver) put(ctx context.Context, addr string, questions ...resp.Command) ([]resp.Value, error) {
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
func (f *resolver) sentinel(ctx context.Context, addr string) (*Stream, error) {
	cfg := f.cfg.sentinel(addr)
	s, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newStream(s, cfg), nil
}

// converse writes all questions and reads the replies.
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

// understand parses the replies to the commands of question.
func (f *resolver) understand(replies []resp.Value) (answer, error) {
	if err := replies[0].Err(); err != nil {
		return answer{}, fmt.Errorf("SENTINEL: %w", err)
	}
	a := answer{master: announcedAt(replies[0].At(0), replies[0].At(1)), epoch: -1}
	if a.master == "" {
		return answer{}, errUnknownMaster
	}
	state, _ := replies[1].Pairs() // an answer without an epoch is never preferred
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

// announcedAt returns the address made of host and port, or "" if they are malformed.
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

// announcedIn returns the address in a sentinel's description of a server, or "".
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

// rateLimiter allows 15 events per second after an initial burst, and at most 20 in any second.
type rateLimiter struct {
	mu   sync.Mutex
	next time.Time // time of the next event without any burst
}

const (
	eventInterval = time.Second / 15
	eventBurst    = 4
)

// take reserves the next event and returns the wait before it.
func (p *rateLimiter) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-eventBurst * eventInterval); p.next.Before(earliest) {
		p.next = earliest
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(eventInterval)
	return max(wait, 0)
}

// wait waits for the next event.
func (p *rateLimiter) wait(ctx context.Context, changed <-chan struct{}) error {
	return await(ctx, changed, p.take(time.Now()))
}

// await waits for d. It returns early with an error if ctx ends or changed closes, the sign of another master.
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
