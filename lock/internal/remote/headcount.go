package remote

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

const (
	// lagMax is the maximum lag, in seconds, of a replica able to acknowledge.
	lagMax = 2
	// firstAck is the time within which a replica with all the data has acknowledged something: a replica with a longer lag is silent.
	firstAck = (lagMax + 1) * time.Second
)

var errNotMaster = errors.New("the server is no longer the master")

// sections are the commands for a headcount. The arrivals come first: a replica that comes between the two replies is counted now, and is
// an arrival in the next headcount.
var sections = [...]resp.Command{resp.Cmd("INFO", "stats"), resp.Cmd("INFO", "replication")}

// headcount has the addresses of a server's replicas, as reported by the server.
type headcount struct {
	live    []string // replicas able to acknowledge
	silent  []string // replicas with a lag above lagMax
	syncing []string // replicas in their first synchronization
	muted   []string // replicas without any acknowledgement so far, and not silent; see Replicas.classifyMuted

	attachment
}

// attachment is comparable: the attachments of two headcounts are the same if no replica has come or gone.
type attachment struct {
	replicas int // in any state
	arrivals arrivals
}

// arrivals counts the replicas that have begun to follow the server; zero if the server does not count.
type arrivals struct {
	data          string // id of the data: numbers of two servers are not comparable
	full, partial int    // with all data, and with the last changes only
}

// parseArrivals decodes a reply to INFO stats.
func parseArrivals(stats string) (a arrivals) {
	a.full, _ = strconv.Atoi(InfoLine(stats, "sync_full"))
	a.partial, _ = strconv.Atoi(InfoLine(stats, "sync_partial_ok"))
	return a
}

// last reports whether no replica has come since a, by the reply to a later INFO stats.
func (a arrivals) last(stats resp.Value) bool {
	text, err := stats.Text()
	later := parseArrivals(text)
	return err == nil && a.data != "" && later.full == a.full && later.partial == a.partial
}

// parseHeadcount decodes the replies to sections.
func parseHeadcount(replies []resp.Value) (h headcount, err error) {
	stats, err := replies[0].Text()
	if err = errors.Join(replies[0].Err(), err); err != nil {
		return h, fmt.Errorf("INFO stats: %w", err)
	}
	text, err := replies[1].Text()
	if err = errors.Join(replies[1].Err(), err); err != nil {
		return h, fmt.Errorf("INFO replication: %w", err)
	}
	if InfoLine(stats, "sync_full") != "" {
		h.arrivals = parseArrivals(stats)
		h.arrivals.data = InfoLine(text, "master_replid")
	}
	err = h.parseReplicas(text)
	return h, err
}

// parseReplicas decodes a text of INFO replication, with lines such as
// "slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0". A replica in its first synchronization may have two lines: Valkey sends it the
// data over a connection of its own.
func (h *headcount) parseReplicas(text string) error {
	master := false
	written := InfoLine(text, "master_repl_offset")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "role" {
			master = value == "master"
		}
		if !strings.HasPrefix(name, "slave") || !strings.Contains(value, ",state=") {
			continue
		}
		addr := net.JoinHostPort(infoField(value, "ip"), infoField(value, "port"))
		switch seconds, err := strconv.Atoi(infoField(value, "lag")); {
		case !strings.Contains(value, ",state=online,"):
			if !slices.Contains(h.syncing, addr) {
				h.syncing = append(h.syncing, addr)
			}
		case err == nil && seconds > lagMax:
			h.silent = append(h.silent, addr)
		case infoField(value, "offset") == "0" && written != "" && written != "0":
			h.muted = append(h.muted, addr)
		default:
			h.live = append(h.live, addr)
		}
	}
	h.syncing = slices.DeleteFunc(h.syncing, func(addr string) bool { return slices.Contains(h.live, addr) })
	h.replicas = len(h.live) + len(h.silent) + len(h.syncing) + len(h.muted)
	if !master {
		return errNotMaster
	}
	return nil
}

// newcomers returns the maximum number of replicas that were not live at the time of h and have acknowledged before after. A replica may
// have come, acknowledged and gone.
func (h *headcount) newcomers(after *headcount) int {
	became := len(after.live) - common(after.live, h.live)
	began := after.arrivals.full - h.arrivals.full + after.arrivals.partial - h.arrivals.partial
	began -= len(after.syncing) - common(after.syncing, h.syncing) // and have not ended
	ended := len(h.syncing) - common(h.syncing, slices.Concat(after.syncing, after.muted)) + len(h.silent) - common(after.silent, h.silent)
	return max(became, ended+max(began, 0))
}

// syncingNotAway returns the number of replicas in a first synchronization, without replicas away to the other nodes.
func (h *headcount) syncingNotAway(s conn.Succession) int {
	return len(h.syncing) - common(h.syncing, s.AwayAddrs)
}

// common returns the number of addresses in both lists, however IPv6 is written: a master repeats what a replica announces, a sentinel does not.
func common(a, b []string) (n int) {
	for _, addr := range a {
		same := func(other string) bool { return canonical(other) == canonical(addr) }
		if slices.ContainsFunc(b, same) {
			n++
		}
	}
	return n
}

// canonical returns an address in the one way to write its IP address, or as it is with a host name.
func canonical(addr string) string {
	if at, err := netip.ParseAddrPort(addr); err == nil {
		return at.String()
	}
	return addr
}

// literal reports whether all addresses have a literal IP address in place of a host name.
func literal(addrs []string) bool {
	return !slices.ContainsFunc(addrs, func(addr string) bool {
		_, err := netip.ParseAddrPort(addr)
		return err != nil
	})
}

// infoField returns a field of a line of INFO such as "ip=10.0.0.2,port=6379".
func infoField(line, name string) string {
	_, value, _ := strings.Cut(","+line, ","+name+"=")
	value, _, _ = strings.Cut(value, ",")
	return value
}
