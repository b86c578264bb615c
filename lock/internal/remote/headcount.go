package remote

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// lagMax is the maximum lag, in seconds, of a replica able to acknowledge.
const lagMax = 2

// sections are the commands for a headcount. The arrivals come first: a replica that comes between the two replies is counted now, and its
// arrival is new to the next headcount.
var sections = [...]resp.Command{resp.Cmd("INFO", "stats"), resp.Cmd("INFO", "replication")}

// headcount has the numbers of a server's replicas, as reported by the server.
type headcount struct {
	live    int // replicas able to acknowledge
	silent  int // replicas with a lag above lagMax
	syncing int // replicas in their first synchronization

	liveAddrs, syncingAddrs []string

	attachment
}

// attachment is comparable with the one of an earlier headcount: both are the same if no replica has come or gone.
type attachment struct {
	replicas int    // in any state
	arrivals string // changes whenever a replica begins to follow the server; "" if the server does not count arrivals
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
	if full := InfoLine(stats, "sync_full"); full != "" {
		h.arrivals = InfoLine(text, "master_replid") + " " + full + " " + InfoLine(stats, "sync_partial_ok")
	}
	err = h.parseReplicas(text)
	return h, err
}

// parseReplicas decodes a text of INFO replication, with lines such as
// "slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0".
func (h *headcount) parseReplicas(text string) error {
	master := false
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
			h.syncing++
			h.syncingAddrs = append(h.syncingAddrs, addr)
		case err == nil && seconds > lagMax:
			h.silent++
		default:
			h.live++
			h.liveAddrs = append(h.liveAddrs, addr)
		}
	}
	h.replicas = h.live + h.silent + h.syncing
	if !master {
		return errNotMaster
	}
	return nil
}

// infoField returns a field of a line of INFO such as "ip=10.0.0.2,port=6379".
func infoField(line, name string) string {
	_, value, _ := strings.Cut(","+line, ","+name+"=")
	value, _, _ = strings.Cut(value, ",")
	return value
}
