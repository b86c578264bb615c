package sentinel

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// answer is a sentinel's description of the master and of the other sentinels.
type answer struct {
	master    string  // announced address; never empty
	epoch     int64   // epoch of the configuration; below 0 if missing
	sentinels []place // of the other sentinels
}

// place is the address of a sentinel: as announced, and as changed by Config.Map for the dial. A sentinel of Config.Addrs has the same
// address twice.
type place struct{ announced, addr string }

// older reports whether the answer was given before the failover to m.
func (a answer) older(m master) bool { return a.epoch >= 0 && a.epoch < m.epoch }

// newer returns the answer with the larger epoch.
func (a answer) newer(b answer) answer {
	if a.master == "" || b.epoch > a.epoch {
		return b
	}
	return a
}

// question asks the sentinel at a place for the master, and learns the other sentinels.
func (f *Resolver) question(ctx context.Context, at place) (answer, error) {
	name := f.cfg.Master
	replies, err := f.put(ctx, at,
		resp.Cmd("SENTINEL", "get-master-addr-by-name", name),
		resp.Cmd("SENTINEL", "master", name),
		resp.Cmd("SENTINEL", "sentinels", name))
	if err != nil {
		return answer{}, err
	}
	a, err := f.understand(replies)
	if err != nil {
		return answer{}, f.cfg.Failure(at.addr, err)
	}
	f.learn(at, a)
	return a, nil
}

// put sends all questions at once to the sentinel at a place, over a new connection, and returns the replies within
// Config.Timeout. The error is one of Config.Failure or Config.Ask.
func (f *Resolver) put(ctx context.Context, at place, questions ...resp.Command) ([]resp.Value, error) {
	cause := fmt.Errorf("no answer of the sentinel within %v: %w", f.cfg.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.Timeout, cause)
	defer cancel()
	stream, err := f.cfg.Ask(ctx, at.announced, at.addr)
	if err != nil {
		return nil, err
	}
	stop := netfail.OnEnd(ctx, func() { _ = stream.Close() })
	replies, err := converse(ctx, stream, questions)
	if stop() {
		err = netfail.Ended(ctx)
	}
	_ = stream.Close()
	if err != nil {
		return nil, f.cfg.Failure(at.addr, err)
	}
	return replies, nil
}

// converse writes all questions and reads the replies.
func converse(ctx context.Context, stream Stream, questions []resp.Command) ([]resp.Value, error) {
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
func (f *Resolver) understand(replies []resp.Value) (answer, error) {
	if err := replies[0].Err(); err != nil {
		return answer{}, fmt.Errorf("SENTINEL: %w", err)
	}
	host, _ := replies[0].At(0).Text()
	port, _ := replies[0].At(1).Text()
	a := answer{master: announced(host, port), epoch: epochIn(replies[1])}
	if a.master == "" {
		return answer{}, errUnknownMaster
	}
	for other := range replies[2].All() {
		if addr := announcedIn(other); addr != "" && len(a.sentinels) < maxSentinels {
			a.sentinels = append(a.sentinels, place{addr, f.cfg.Map(addr)})
		}
	}
	return a, nil
}

// announcedIn returns the address in a sentinel's description of a server, or "".
func announcedIn(v resp.Value) string { return announced(fieldOf(v, "ip"), fieldOf(v, "port")) }

// epochIn returns the epoch in a sentinel's description of a master; below 0 if missing. An answer without an epoch is never
// preferred.
func epochIn(v resp.Value) int64 {
	n, err := strconv.ParseInt(fieldOf(v, "config-epoch"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// announced returns the address made of a sentinel's host and port, or "" if they are malformed.
func announced(host, port string) string {
	const longestName = 255
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > longestName {
		return ""
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' || r == '@' }) {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10))
}
