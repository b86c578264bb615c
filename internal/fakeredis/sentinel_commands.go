package fakeredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

func sentinelCommands() []command {
	of := func(run func(t *sentinel, x *call) any) func(x *call) any {
		return func(x *call) any {
			switch t := x.s.sentinel; {
			case t == nil:
				return errUnknown(x.args)
			case x.args[2] != t.watch.Name:
				return Err("ERR No such master with that name")
			default:
				return run(t, x)
			}
		}
	}
	replicas := func(t *sentinel, _ *call) any {
		list := []any{}
		for _, addr := range sortedKeys(t.servers) {
			if addr != t.master {
				list = append(list, t.replica(t.servers[addr]))
			}
		}
		return list
	}
	return []command{
		{name: "sentinel|get-master-addr-by-name", arity: 3, flags: notScript, run: masterAddr},
		{name: "sentinel|master", arity: 3, flags: notScript, run: of(func(t *sentinel, _ *call) any { return t.describe() })},
		{name: "sentinel|replicas", arity: 3, flags: notScript, run: of(replicas)},
		{name: "sentinel|slaves", arity: 3, flags: notScript, run: of(replicas)},
		{name: "sentinel|sentinels", arity: 3, flags: notScript, run: of(func(t *sentinel, _ *call) any {
			list := []any{}
			for _, addr := range sortedKeys(t.others) {
				o := t.others[addr]
				list = append(list, append(t.common(o.instance, addr, "sentinel"), "last-hello-message", milliseconds(time.Since(o.heard))))
			}
			return list
		})},
		{name: "sentinel|failover", arity: 3, flags: notScript, run: of(failover)},
		{name: "sentinel|ckquorum", arity: 3, flags: notScript, run: of(checkQuorum)},
	}
}

func masterAddr(x *call) any {
	t := x.s.sentinel
	switch {
	case t == nil:
		return errUnknown(x.args)
	case x.args[2] != t.watch.Name:
		return nullArray{}
	}
	host, port, _ := net.SplitHostPort(t.current())
	return []any{host, port}
}

// failover replaces a master in any state. Unlike in Redis the sentinels have to agree: otherwise two such failovers could have
// the same epoch.
func failover(t *sentinel, _ *call) any {
	if t.stage != noFailover {
		return Err("INPROG Failover already in progress")
	}
	if t.choice() == nil {
		return Err("NOGOODSLAVE No suitable replica to promote")
	}
	t.begin()
	return ok
}

// checkQuorum reports whether the reachable sentinels could agree on a failover.
func checkQuorum(t *sentinel, _ *call) any {
	usable, all := 1, len(t.others)+1
	for _, o := range t.others {
		if !o.down {
			usable++
		}
	}
	quorum, majority := usable >= t.watch.Quorum, usable >= all/2+1
	if quorum && majority {
		return Status(fmt.Sprintf("OK %d usable Sentinels. Quorum and failover authorization can be reached", usable))
	}
	text := fmt.Sprintf("NOQUORUM %d usable Sentinels. ", usable)
	if !quorum {
		text += "Not enough available Sentinels to reach the specified quorum for this master"
	}
	if !majority {
		if !quorum {
			text += ". "
		}
		text += "Not enough available Sentinels to reach the majority and authorize a failover"
	}
	return Err(text)
}

// spaced is an address as two words.
func spaced(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return host + " " + port
}

// describe is the answer to SENTINEL master: until the end of a failover the former master, with the epoch of the next.
func (t *sentinel) describe() pairs {
	m := t.servers[t.master]
	words := t.common(m, t.watch.Name, "master")
	return append(words, "config-epoch", strconv.FormatInt(t.config, 10), "num-slaves", strconv.Itoa(len(t.servers)-1),
		"num-other-sentinels", strconv.Itoa(len(t.others)), "quorum", strconv.Itoa(t.watch.Quorum),
		"failover-timeout", milliseconds(t.watch.Failover), "parallel-syncs", strconv.Itoa(len(t.servers)))
}

// replica is a replica in the answer to SENTINEL replicas.
func (t *sentinel) replica(i *instance) pairs {
	status := "err"
	if i.info.linked {
		status = "ok"
	}
	host, port := "?", "0"
	if i.info.master != "" {
		host, port, _ = net.SplitHostPort(i.info.master)
	}
	return append(t.common(i, i.addr, "slave"), "master-link-down-time", milliseconds(i.info.downFor), "master-link-status", status,
		"master-host", host, "master-port", port, "slave-priority", "100", "slave-repl-offset", strconv.FormatInt(i.copied, 10),
		"replica-announced", "1")
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// common is a sentinel's description of any server.
func (t *sentinel) common(i *instance, name, kind string) pairs {
	flags := []string{kind}
	if i.down {
		flags = append([]string{"s_down"}, flags...)
	}
	if kind == "master" && t.objectivelyDown() {
		flags = append([]string{flags[0], "o_down"}, flags[1:]...)
	}
	if i.cut {
		flags = append(flags, "disconnected")
	}
	if kind == "master" && t.stage != noFailover {
		flags = append(flags, "failover_in_progress")
	}
	host, port, _ := net.SplitHostPort(i.addr)
	silent := time.Duration(0)
	if !i.pinged.IsZero() {
		silent = time.Since(i.pinged)
	}
	words := pairs{"name", name, "ip", host, "port", port, "runid", i.info.runID, "flags", strings.Join(flags, ","),
		"link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", milliseconds(silent),
		"last-ok-ping-reply", milliseconds(time.Since(i.pong)), "last-ping-reply", milliseconds(time.Since(i.pong))}
	if i.down {
		words = append(words, "s-down-time", milliseconds(time.Since(i.downFrom)))
	}
	words = append(words, "down-after-milliseconds", milliseconds(t.watch.DownAfter))
	if kind == "sentinel" {
		return words
	}
	return append(words, "info-refresh", milliseconds(time.Since(i.infoAt)), "role-reported", i.info.role,
		"role-reported-time", milliseconds(time.Since(i.roleSince)))
}
