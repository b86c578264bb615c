package fakeredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	errReadOnly  = Err("READONLY You can't write against a read only replica.")
	errUnblocked = Err("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)")
)

func replicationCommands() []command {
	return []command{
		{name: "role", arity: 1, flags: notScript, run: role},
		{name: "wait", arity: 3, flags: notScript, run: waitReplicas},
		{name: "replicaof", arity: 3, flags: notScript, run: replicaOf},
		{name: "slaveof", arity: 3, flags: notScript, run: replicaOf},
	}
}

func replicaOf(x *call) any {
	if x.s.network == nil {
		return Err("ERR no Network")
	}
	if isAny(x.args[1], "NO") && isAny(x.args[2], "ONE") {
		x.s.replicaOfLocked("")
		return ok
	}
	if port, valid := parseInt(x.args[2]); !valid || port < 0 || port > 65535 {
		return Err("ERR Invalid master port")
	}
	addr := net.JoinHostPort(x.args[1], x.args[2])
	if x.s.repl.master == addr {
		return Status("OK Already connected to specified master")
	}
	x.s.replicaOfLocked(addr)
	return ok
}

// unblockLocked ends the waiting commands, and their connections.
func (s *Server) unblockLocked() {
	for _, w := range s.waiters {
		w.reply = errUnblocked
		w.c.leaving = true
		close(w.served)
	}
	s.waiters = nil
}

func waitReplicas(x *call) any {
	if x.s.repl.master != "" {
		return Err("ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured " +
			"to be writable (which is not the default) writes to replicas are just local and are not propagated.")
	}
	n, bad := x.int64At(1)
	if bad != nil {
		return bad
	}
	ms, valid := parseInt(x.args[2])
	if !valid || ms < 0 {
		return timeoutError(valid)
	}
	offset := x.c.offset
	try := func() (any, bool) {
		got := x.s.acksLocked(offset)
		return got, int64(got) >= n
	}
	last := func() any { return x.s.acksLocked(offset) }
	if _, done := try(); !done && !x.inside {
		x.s.demandLocked()
	}
	return x.orBlock(&block{try: try, late: last(), last: last, wait: time.Duration(ms) * time.Millisecond})
}

// mode is the server's mode in HELLO and INFO.
func (s *Server) mode() string {
	switch {
	case s.sentinel != nil:
		return "sentinel"
	case s.cluster != nil:
		return "cluster"
	}
	return "standalone"
}

func (s *Server) role() string {
	if s.repl.master != "" {
		return "replica"
	}
	return "master"
}

// linkState is the state of the connection to the master in ROLE.
func (s *Server) linkState() string {
	if s.repl.state == "connect" && s.repl.source != nil {
		return "connecting"
	}
	return s.repl.state
}

func role(x *call) any {
	r := &x.s.repl
	switch {
	case x.s.network == nil:
		return []any{"master", 0, []any{}}
	case r.master != "":
		host, port, _ := net.SplitHostPort(r.master)
		n, _ := strconv.Atoi(port)
		offset := r.offset
		if r.state != "connected" {
			offset = -1
		}
		return []any{"slave", host, n, x.s.linkState(), offset}
	}
	replicas := []any{}
	for _, f := range r.feeds {
		if f.state == "online" {
			host, port, _ := net.SplitHostPort(f.replica)
			replicas = append(replicas, []any{host, port, strconv.FormatInt(f.acked, 10)})
		}
	}
	return []any{"master", r.offset, replicas}
}

// replicationInfo is the section of INFO.
func (s *Server) replicationInfo() string {
	r := &s.repl
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	b.WriteString("# Replication\r\n")
	if r.master == "" {
		line("role", "master")
	} else {
		host, port, _ := net.SplitHostPort(r.master)
		line("role", "slave")
		line("master_host", host)
		line("master_port", port)
		if r.state == "connected" {
			line("master_link_status", "up")
			line("master_last_io_seconds_ago", int(time.Since(r.heard).Seconds()))
		} else {
			line("master_link_status", "down")
			line("master_last_io_seconds_ago", -1)
		}
		line("master_sync_in_progress", boolInt(r.state == "sync"))
		line("slave_repl_offset", r.offset)
		if r.state != "connected" {
			line("master_link_down_since_seconds", int(time.Since(r.downFrom).Seconds()))
		}
		line("slave_priority", 100)
	}
	if s.network == nil {
		line("connected_slaves", s.replicas)
		return b.String()
	}
	line("connected_slaves", len(r.feeds))
	for i, f := range r.feeds {
		host, port, _ := net.SplitHostPort(f.replica)
		lag := 0
		if f.state == "online" {
			lag = int(time.Since(f.heard).Seconds())
		}
		fmt.Fprintf(&b, "slave%d:ip=%s,port=%s,state=%s,offset=%d,lag=%d\r\n", i, host, port, f.state, f.acked, lag)
	}
	line("master_replid", r.id)
	line("master_repl_offset", r.offset)
	return b.String()
}
