package lock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// aliases detects two locks of a Multi that are one lock under two addresses of its server. Such a Multi would wait
// for itself.
type aliases struct {
	suspects []*Handle // constant: the locks that share their name with another
	distinct atomic.Bool
}

func (a *aliases) suspect(locks []*Handle) {
	count := make(map[string]int)
	for _, h := range locks {
		count[h.target.Name]++
	}
	a.suspects = slices.DeleteFunc(slices.Clone(locks), func(h *Handle) bool { return count[h.target.Name] == 1 })
}

// find returns an error if two locks are one. find asks the servers for their identity until all have answered once.
// With again, find asks once more, since an address may lead to another server by now. A server that does not answer
// in time counts as distinct.
func (a *aliases) find(ctx context.Context, again bool) error {
	if len(a.suspects) == 0 || a.distinct.Load() && !again {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeoutMax)
	defer cancel()
	ids := make([]string, len(a.suspects))
	atOnce(a.suspects, func(i int, h *Handle) { ids[i] = h.whereabouts(ctx) })
	seen, all := make(map[string]bool), true
	for i, h := range a.suspects {
		key := ids[i] + " " + h.target.Name
		switch {
		case ids[i] == "":
			all = false
		case seen[key]:
			return h.client.invalid(h.target.Name, "twice, under two addresses of one server")
		}
		seen[key] = true
	}
	if all {
		a.distinct.Store(true)
	}
	return nil
}

// whereabouts identifies the server and the database of the lock; "" if unknown.
func (h *Handle) whereabouts(ctx context.Context) string {
	c := h.client
	replies, err := c.server.SendBatch(remote.Patient(ctx), []resp.Command{
		resp.Cmd("INFO", "server").On(h.target.Name),
		resp.Cmd("CLIENT", "INFO").On(h.target.Name),
	})
	if err != nil {
		return ""
	}
	runID, _, _ := remote.ParseServerInfo(replies[0])
	info, _ := replies[1].Text()
	_, db, _ := strings.Cut(" "+info, " db=")
	db, _, _ = strings.Cut(db, " ")
	if p, ok := c.nature.inner.(interface{ DB() int }); ok && db == "" { // the server does not support CLIENT INFO
		db = strconv.Itoa(p.DB())
	}
	if runID == "" || db == "" {
		return ""
	}
	return runID + "/" + db
}
