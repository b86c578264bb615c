package fakeredis

import "slices"

func transactionCommands() []command {
	return []command{
		{name: "multi", arity: 1, flags: onConn | notScript | unqueued, run: multi},
		{name: "exec", arity: 1, flags: onConn | notScript | unqueued, run: exec},
		{name: "discard", arity: 1, flags: onConn | notScript | unqueued, run: discard},
		{name: "watch", arity: -2, flags: onConn | notScript | unqueued, run: watchKeys},
		{name: "unwatch", arity: 1, flags: onConn | notScript, run: unwatch},
	}
}

// transaction holds the commands since MULTI.
type transaction struct {
	queued [][]string
	broken bool
}

func (t *transaction) queue(args []string, bad Err) any {
	if bad != "" {
		t.broken = true
		return bad
	}
	t.queued = append(t.queued, args)
	return queued
}

// watch is a key watched by a connection. expired: the key had expired before WATCH.
type watch struct {
	db      *db
	key     string
	expired bool
}

// touch notes a change of a key by a command.
func (x *call) touch(key string) {
	x.db.touch(key)
	if !slices.Contains(x.touched, key) {
		x.touched = append(x.touched, key)
	}
}

// touch fails the transactions that watch the key.
func (d *db) touch(key string) {
	if d.changed != nil {
		d.changed[key] = true
	}
	for _, c := range d.watched[key] {
		c.stale = true
	}
}

func watchKeys(x *call) any {
	if x.c.tx != nil {
		return Err("ERR WATCH inside MULTI is not allowed")
	}
	for _, key := range x.args[1:] {
		if slices.Contains(x.db.watched[key], x.c) {
			continue
		}
		if x.db.watched == nil {
			x.db.watched = map[string][]*conn{}
		}
		x.db.watched[key] = append(x.db.watched[key], x.c)
		e := x.db.keys[key]
		x.c.watched = append(x.c.watched, watch{x.db, key, e != nil && e.expired(x.now)})
	}
	return ok
}

func unwatch(x *call) any {
	x.c.unwatch()
	return ok
}

func (c *conn) unwatch() {
	for _, w := range c.watched {
		w.db.watched[w.key] = slices.DeleteFunc(w.db.watched[w.key], func(o *conn) bool { return o == c })
	}
	c.watched, c.stale = nil, false
}

func multi(x *call) any {
	if x.c.tx != nil {
		return Err("ERR MULTI calls can not be nested")
	}
	x.c.tx = &transaction{}
	return ok
}

func discard(x *call) any {
	if x.c.tx == nil {
		return Err("ERR DISCARD without MULTI")
	}
	x.c.tx = nil
	x.c.unwatch()
	return ok
}

func exec(x *call) any {
	t := x.c.tx
	if t == nil {
		return Err("ERR EXEC without MULTI")
	}
	stale := x.c.stale
	for _, w := range x.c.watched {
		e := w.db.keys[w.key]
		stale = stale || !w.expired && e != nil && e.expired(x.now)
	}
	x.c.tx = nil
	x.c.unwatch()
	switch {
	case t.broken:
		return Err("EXECABORT Transaction discarded because of previous errors.")
	case stale:
		return nullArray{}
	}
	replies := []any{}
	for _, args := range t.queued {
		cmd, _ := x.s.lookup(args)
		inner := &call{s: x.s, c: x.c, db: &x.s.dbs[x.c.db], cmd: cmd, args: args, now: x.now, inside: true, asking: x.asking}
		replies = append(replies, inner.do())
	}
	return replies
}
