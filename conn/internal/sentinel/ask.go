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
	master    string         // announced address; never empty
	epoch     int64          // epoch of the configuration; below 0 if missing
	sentinels []sentinelAddr // of the other sentinels
}

// sentinelAddr is the address of a sentinel: as announced, and as changed by Config.Map for the dial. For a sentinel of
// Config.Addrs both are the same.
type sentinelAddr struct{ announced, addr string }

// older reports whether the answer was given before the failover to m.
func (a answer) older(m master) bool { return a.epoch >= 0 && a.epoch < m.epoch }

// askMaster asks the sentinel at an address for the master, and learns the other sentinels.
func (r *Resolver) askMaster(ctx context.Context, at sentinelAddr) (answer, error) {
	name := r.cfg.Master
	replies, err := r.roundTrip(ctx, at,
		resp.Cmd("SENTINEL", "get-master-addr-by-name", name),
		resp.Cmd("SENTINEL", "master", name),
		resp.Cmd("SENTINEL", "sentinels", name))
	if err != nil {
		return answer{}, err
	}
	a, err := r.parseAnswer(replies)
	if err != nil {
		return answer{}, r.cfg.Failure(at.addr, err)
	}
	r.learn(at, a)
	return a, nil
}

// roundTrip sends all questions at once to the sentinel at an address, over a new connection, and returns the replies. It
// takes Config.Timeout at most. The error comes from Config.Failure or Config.Ask.
func (r *Resolver) roundTrip(ctx context.Context, at sentinelAddr, questions ...resp.Command) ([]resp.Value, error) {
	cause := fmt.Errorf("no answer of the sentinel within %v: %w", r.cfg.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, cause)
	defer cancel()
	stream, err := r.cfg.Ask(ctx, at.announced, at.addr)
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
		return nil, r.cfg.Failure(at.addr, err)
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

// parseAnswer parses the replies to the commands of askMaster.
func (r *Resolver) parseAnswer(replies []resp.Value) (answer, error) {
	if err := replies[0].Err(); err != nil {
		return answer{}, fmt.Errorf("SENTINEL: %w", err)
	}
	host, _ := replies[0].At(0).Text()
	port, _ := replies[0].At(1).Text()
	a := answer{master: joinAddr(host, port), epoch: epochIn(replies[1])}
	if a.master == "" {
		return answer{}, errUnknownMaster
	}
	for other := range replies[2].All() {
		if addr := addrIn(other); addr != "" && len(a.sentinels) < maxSentinels {
			a.sentinels = append(a.sentinels, sentinelAddr{addr, r.cfg.Map(addr)})
		}
	}
	return a, nil
}

// addrIn returns the announced address in a sentinel's description of a server, or "".
func addrIn(v resp.Value) string { return joinAddr(fieldOf(v, "ip"), fieldOf(v, "port")) }

// epochIn returns the epoch in a sentinel's description of a master; below 0 if missing. An answer without an epoch is never
// preferred.
func epochIn(v resp.Value) int64 {
	n, err := strconv.ParseInt(fieldOf(v, "config-epoch"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// joinAddr returns the address made of the host and port in a sentinel's reply, or "" if they are malformed.
func joinAddr(host, port string) string {
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
