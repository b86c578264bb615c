package fakeredis

import (
	"math"
	"strings"
	"sync"
)

// command is a row of the table of commands, or of the subcommands of one.
type command struct {
	name  string // as in error texts: lower case, "client|setname" for a subcommand
	arity int    // arguments, including the name; below 0: a minimum
	flags flags
	run   func(x *call) any
	subs  map[string]*command
	keyed bool // about data
}

type flags uint8

const (
	onWrite    flags = 1 << iota // changes data or publishes: not allowed in read-only scripts
	onConn                       // is about a connection
	notScript                    // not allowed in scripts
	subscribed                   // allowed in RESP2 while subscribed
	unqueued                     // runs at once inside MULTI
	anyone                       // needs no authentication
)

// call is a run of a command.
type call struct {
	s      *Server
	c      *conn
	db     *db
	cmd    *command
	args   []string
	now    int64 // ms
	inside bool  // of a script, a transaction or Do: never blocks
	asking bool  // the client has sent ASKING before

	touched []string // keys changed by the command
}

// changesData reports whether a replica refuses the command. A replica runs publishing commands and scripts.
func (cmd *command) changesData() bool {
	name, _, _ := strings.Cut(cmd.name, "|")
	switch name {
	case "publish", "spublish", "eval", "eval_ro", "evalsha", "evalsha_ro", "script":
		return false
	}
	return cmd.flags&onWrite != 0
}

// commandTable is for all servers.
var commandTable = sync.OnceValue(func() map[string]*command {
	table := map[string]*command{}
	data := [][]command{
		keyCommands(), stringCommands(), hashCommands(), listCommands(), blockingCommands(), setCommands(), sortedSetCommands(),
	}
	for i, group := range append(data, connectionCommands(), pubsubCommands(), scriptCommands(), transactionCommands(), serverCommands(),
		replicationCommands(), sentinelCommands(), clusterCommands(),
	) {
		for _, cmd := range group {
			cmd.keyed = i < len(data)
			parent, _, isSub := strings.Cut(cmd.name, "|")
			if !isSub {
				table[cmd.name] = &cmd
				continue
			}
			if table[parent] == nil {
				table[parent] = &command{name: parent, arity: -2, flags: cmd.flags, subs: map[string]*command{}}
			}
			table[parent].subs[cmd.name] = &cmd
		}
	}
	return table
})

// lookup finds the command called by args, or returns the error.
func (s *Server) lookup(args []string) (*command, Err) {
	name := strings.ToLower(args[0])
	cmd := s.commands[name]
	if cmd == nil {
		return nil, errUnknown(args)
	}
	if cmd.subs != nil && len(args) > 1 {
		cmd = cmd.subs[name+"|"+strings.ToLower(args[1])]
		if cmd == nil {
			return nil, Err("ERR unknown subcommand '" + args[1] + "'. Try " + strings.ToUpper(name) + " HELP.")
		}
	}
	if cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity {
		return nil, errArity(cmd.name)
	}
	return cmd, ""
}

// execute runs a command received over c, or queues or refuses the command.
func (s *Server) execute(c *conn, args []string) any {
	cmd, bad := s.lookup(args)
	asking := c.asking
	c.asking = false
	defer func() { c.asking = c.asking || asking && c.tx != nil }()
	switch {
	case bad != "":
	case !c.authed && cmd.flags&anyone == 0:
		bad = "NOAUTH Authentication required."
	case s.cluster != nil && s.redirect(cmd, cmd.keysOf(args), asking) != "":
		bad = s.redirect(cmd, cmd.keysOf(args), asking)
	case cmd.name == "exec" && s.redirectTx(c.tx, asking) != "":
		bad = s.redirectTx(c.tx, asking)
		c.tx = nil
		c.unwatch()
	case cmd.changesData() && s.repl.master != "":
		bad = errReadOnly
	case s.limited(cmd, false, false) != "":
		bad = s.limited(cmd, false, false)
	case c.proto == 2 && c.subscriptions()+len(c.shards) > 0 && cmd.flags&subscribed == 0:
		bad = Err("ERR Can't execute '" + cmd.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	}
	if c.tx != nil && (bad != "" || cmd.flags&unqueued == 0) {
		return c.tx.queue(args, bad)
	}
	if bad != "" {
		return bad
	}
	x := &call{s: s, c: c, db: &s.dbs[c.db], cmd: cmd, args: args, now: nowMs(), asking: asking}
	reply := x.do()
	s.ranLocked(c)
	return reply
}

// db is a numbered database.
type db struct {
	index   int
	keys    map[string]*entry
	watched map[string][]*conn
	changed map[string]bool // by the running command, in a Network
}

// entry is a key's value (string, *hash, *list, *set or *sortedSet) and its deadline.
type entry struct {
	value any
	until int64 // Unix time in ms; 0: none
}

// expired reports whether the entry's time is over. As in Redis the entry still lives in the millisecond of its deadline.
func (e *entry) expired(now int64) bool { return e.until != 0 && now > e.until }

// get returns a key's entry, or nil. An expired key is deleted first.
func (x *call) get(key string) *entry {
	e := x.db.keys[key]
	if e != nil && e.expired(x.now) {
		if x.s.repl.master == "" { // a replica leaves the end of a key to its master
			delete(x.db.keys, key)
			if x.db.changed != nil {
				x.db.changed[key] = true
			}
			x.s.tellLocked(x.db, 'x', "expired", key)
		}
		return nil
	}
	return e
}

// set gives a key a new value without a deadline.
func (x *call) set(key string, value any) *entry {
	e := &entry{value: value}
	x.db.keys[key] = e
	x.touch(key)
	return e
}

// remove deletes a key and reports whether the key existed.
func (x *call) remove(key string) bool {
	if x.get(key) == nil {
		return false
	}
	delete(x.db.keys, key)
	x.touch(key)
	return true
}

// find returns the value of a key, zero for a missing key, or an error for a different type.
func find[T any](x *call, key string) (T, any) {
	var none T
	e := x.get(key)
	if e == nil {
		return none, nil
	}
	v, ok := e.value.(T)
	if !ok {
		return none, errType
	}
	return v, nil
}

// sized is a value that must not stay when empty.
type sized interface{ size() int }

// settle ends a change of a key's value: the key goes if nothing is left in it.
func (x *call) settle(key string, v sized) {
	if v.size() == 0 {
		delete(x.db.keys, key)
	}
	x.touch(key)
}

// int64At parses the i-th argument.
func (x *call) int64At(i int) (int64, any) {
	n, ok := parseInt(x.args[i])
	if !ok {
		return 0, errInt
	}
	return n, nil
}

// expiryAt makes a deadline in Unix ms of n, which is in units of ms, counted from base.
func (x *call) expiryAt(n, unit, base int64) (int64, any) {
	if n > math.MaxInt64/unit || n < math.MinInt64/unit || n*unit > math.MaxInt64-base {
		return 0, Err("ERR invalid expire time in '" + x.cmd.name + "' command")
	}
	return n*unit + base, nil
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
