package main

import (
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// lookForRemains looks for the leases of readers whose read-write lock is gone, and for queues of dead waiters.
func (e *examination) lookForRemains(server conn.Doer) {
	const part = ":rwlock_timeout:"
	remains := 0
	for key, err := range conn.Scan(e.ctx, server, "MATCH", "*"+part+"*", "COUNT", 500) {
		if err != nil {
			e.unexamined("remains", err)
			return
		}
		there, err := resp.As[bool](e.client.Server().Send(e.ctx, resp.Cmd("EXISTS", lockOf(key))))
		if err == nil && !there {
			remains++
		}
	}
	queues, err := e.deadQueues(server)
	if err != nil {
		e.unexamined("remains", err)
		return
	}
	if remains > 0 {
		e.add("info", "remains", "%d leases of readers whose lock is gone; they end by themselves", remains)
	}
	if queues > 0 {
		e.add("info", "remains", "%d queues of free Fair locks, of dead waiters only; the next acquire removes them", queues)
	}
	if remains+queues == 0 {
		e.add("ok", "remains", "none")
	}
}

// deadQueues counts the queues of free Fair locks whose waiters have all let their time pass. Keys that the user may not read
// are not counted.
func (e *examination) deadQueues(server conn.Doer) (n int, err error) {
	const queue, deadlines = "redisson_lock_queue:", "redisson_lock_timeout:"
	all := e.client.Server()
	for key, err := range conn.Scan(e.ctx, server, "MATCH", queue+"*", "COUNT", 500) {
		if err != nil {
			return n, err
		}
		rest := strings.TrimPrefix(key, queue)
		name := rest
		if inner, ok := strings.CutPrefix(rest, "{"); ok && strings.IndexByte(inner, '}') == len(inner)-1 {
			name = inner[:len(inner)-1]
		}
		alive, err := resp.As[int](all.Send(e.ctx, resp.Cmd("ZCOUNT", deadlines+rest, time.Now().UnixMilli(), "+inf")))
		if err != nil || alive > 0 {
			continue
		}
		there, err := resp.As[bool](all.Send(e.ctx, resp.Cmd("EXISTS", name)))
		if err == nil && !there {
			n++
		}
	}
	return n, nil
}

// lockOf returns the name of the read-write lock of a reader's lease: {name}:owner:..., or name:owner:... with a hash tag.
func lockOf(key string) string {
	if rest, ok := strings.CutPrefix(key, "{"); ok {
		name, _, _ := strings.Cut(rest, "}:")
		return name
	}
	name, _, _ := strings.Cut(key, "}")
	return name + "}"
}
