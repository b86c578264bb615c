package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// examineServer examines one server.
func (e *examination) examineServer(server conn.Doer) {
	e.measure(server)
	text, err := resp.As[string](server.Send(e.ctx, resp.Cmd("INFO")))
	if err != nil {
		e.unexamined("info", err)
		e.examineClock(server)
		return
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	product, version := "Redis", info["redis_version"]
	if info["server_name"] == "valkey" {
		product, version = "Valkey", info["valkey_version"]
	}
	e.add("ok", "version", "%s %s", product, version)
	if _, spread := e.client.Server().(lock.Spread); !spread && info["cluster_enabled"] == "1" {
		e.fail("cluster", errors.New("the server is a node of a cluster: write redis-cluster:// in place of redis://"))
	}
	e.examineMemory(info)
	e.examinePersistence(info)
	e.examineReplicas(server, info)
	e.examineClock(server)
}

const pings = 20

// measure measures the time of a round trip.
func (e *examination) measure(server conn.Doer) {
	var times []time.Duration
	for range pings {
		begin := time.Now()
		if _, err := server.Send(e.ctx, resp.Cmd("PING")); err != nil {
			e.fail("round trip", err)
			return
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	level, median := "ok", times[pings/2]
	if median > 50*time.Millisecond {
		level = "warn"
	}
	e.add(level, "round trip", "median %s, longest of %d %s", median.Round(time.Microsecond), pings, times[pings-1].Round(time.Microsecond))
}

func (e *examination) examineMemory(info map[string]string) {
	limit, policy := info["maxmemory"], cmp.Or(info["maxmemory_policy"], "unknown")
	if limit != "" && limit != "0" && policy != "noeviction" {
		e.add("warn", "eviction", "the server may delete locks when its memory is full: maxmemory-policy is %s, not noeviction", policy)
		return
	}
	e.add("ok", "eviction", "none (maxmemory %s, maxmemory-policy %s)", cmp.Or(limit, "unknown"), policy)
}

func (e *examination) examinePersistence(info map[string]string) {
	if info["aof_enabled"] == "1" {
		e.add("ok", "persistence", "appendonly")
		return
	}
	e.add("info", "persistence", "no appendonly: a restart loses locks, and their holders learn of it when they renew")
}

func (e *examination) examineReplicas(server conn.Doer, info map[string]string) {
	if role := info["role"]; role != "master" {
		e.add("fail", "replication", "the server is a %s, and takes no locks", cmp.Or(role, "server without a role"))
		e.replica, e.code = true, max(e.code, codeFailed)
		return
	}
	n, _ := strconv.Atoi(info["connected_slaves"])
	if n == 0 {
		e.add("info", "replication", "no replica")
		return
	}
	for i := range n {
		fields := "," + info["slave"+strconv.Itoa(i)] + ","
		_, lag, _ := strings.Cut(fields, ",lag=")
		lag, _, _ = strings.Cut(lag, ",")
		level := "ok"
		if !strings.Contains(fields, ",state=online,") || lag != "0" && lag != "1" {
			level = "warn"
		}
		e.add(level, "replication", "replica %d: %s", i+1, strings.Trim(fields, ","))
	}
	e.examineAcks(server, n)
}

// ackTimeout is the longest time of the wait for replicas.
const ackTimeout = time.Second

// examineAcks waits until n replicas have all that the server has written.
func (e *examination) examineAcks(server conn.Doer, n int) {
	begin := time.Now()
	replies, err := server.SendBatch(e.ctx, []resp.Command{resp.Cmd("PING"), resp.Cmd("WAIT", n, ackTimeout.Milliseconds())})
	took := time.Since(begin).Round(time.Microsecond)
	acked := 0
	if err == nil {
		acked, err = resp.As[int](replies[1], nil)
	}
	switch {
	case err != nil:
		e.add("warn", "acknowledgement", "WAIT: %v", err)
	case acked < n:
		e.add("warn", "acknowledgement", "%d of %d replicas acknowledge within %v", acked, n, ackTimeout)
	default:
		e.add("ok", "acknowledgement", "all %d replicas acknowledge, after %v", n, took)
	}
}

// examineClock compares the clocks. Leases do not depend on equal clocks; tokens and queues use the server's clock.
func (e *examination) examineClock(server conn.Doer) {
	begin := time.Now()
	theirs, err := resp.As[time.Time](server.Send(e.ctx, resp.Cmd("TIME")))
	if err != nil {
		e.unexamined("clock", err)
		return
	}
	took := time.Since(begin)
	level, text := difference(theirs.Sub(begin.Add(took/2)), took/2)
	e.add(level, "clock", "%s", text)
}

// difference describes how far a server's clock is ahead of this machine's. The answer came from a time uncertain by doubt.
func difference(ahead, doubt time.Duration) (level, text string) {
	by := ahead.Abs().Round(time.Millisecond)
	switch {
	case ahead.Abs() <= doubt:
		return "ok", "the server's and this machine's agree"
	case ahead > time.Second:
		return "warn", fmt.Sprintf("the server's is ahead of this machine's by %v", by)
	case ahead < -time.Second:
		return "warn", fmt.Sprintf("this machine's is ahead of the server's by %v: a late request may leave a lock taken for a lease", by)
	case ahead > 0:
		return "ok", fmt.Sprintf("the server's is ahead of this machine's by %v", by)
	}
	return "ok", fmt.Sprintf("this machine's is ahead of the server's by %v", by)
}
