package fakeredis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func connectionCommands() []command {
	return []command{
		{name: "hello", arity: -1, flags: onConn | notScript | anyone, run: hello},
		{name: "auth", arity: -2, flags: onConn | notScript | anyone, run: auth},
		{name: "select", arity: 2, flags: onConn, run: selectDB},
		{name: "ping", arity: -1, flags: subscribed, run: ping},
		{name: "echo", arity: 2, run: func(x *call) any { return x.args[1] }},
		{name: "quit", arity: -1, flags: onConn | notScript | subscribed | unqueued | anyone, run: quit},
		{name: "reset", arity: 1, flags: onConn | notScript | subscribed | unqueued | anyone, run: reset},
		{name: "client|id", arity: 2, flags: onConn | notScript, run: func(x *call) any { return x.c.id }},
		{name: "client|getname", arity: 2, flags: onConn | notScript, run: clientName},
		{name: "client|setname", arity: 3, flags: onConn | notScript, run: clientSetName},
		{name: "client|info", arity: 2, flags: onConn | notScript, run: func(x *call) any { return verbatim(x.c.line()) }},
		{name: "client|list", arity: -2, flags: onConn | notScript, run: clientList},
		{name: "client|kill", arity: -3, flags: onConn | notScript, run: clientKill},
		{name: "client|reply", arity: 3, flags: onConn | notScript, run: accept},
		{name: "client|no-evict", arity: 3, flags: onConn | notScript, run: accept},
		{name: "client|tracking", arity: -3, flags: onConn | notScript, run: accept},
	}
}

func accept(*call) any { return ok }

func hello(x *call) any {
	proto := x.c.proto
	if len(x.args) > 1 {
		n, valid := parseInt(x.args[1])
		if !valid {
			return Err("ERR Protocol version is not an integer or out of range")
		}
		if n != 2 && n != 3 {
			return Err("NOPROTO unsupported protocol version")
		}
		proto = int(n)
	}
	user, password, name := "", "", ""
	var withAuth, withName bool
	for words := x.args[min(2, len(x.args)):]; len(words) > 0; {
		switch {
		case isAny(words[0], "AUTH") && len(words) > 2:
			withAuth, user, password, words = true, words[1], words[2], words[3:]
		case isAny(words[0], "SETNAME") && len(words) > 1:
			withName, name, words = true, words[1], words[2:]
		default:
			return Err("ERR Syntax error in HELLO option '" + words[0] + "'")
		}
	}
	if withAuth {
		if reply := x.login(user, password); reply != any(ok) {
			return reply
		}
	}
	if !x.c.authed {
		return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> " +
			"option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if withName {
		if reply := x.c.rename(name); reply != any(ok) {
			return reply
		}
	}
	x.c.proto = proto
	return pairs{"server", "redis", "version", Version, "proto", proto, "id", x.c.id,
		"mode", x.s.mode(), "role", x.s.role(), "modules", []any{}}
}

func auth(x *call) any {
	switch len(x.args) {
	case 2:
		if x.s.users["default"] == "" {
			return Err("ERR AUTH <password> called without any password configured for the default user. " +
				"Are you sure your configuration is correct?")
		}
		return x.login("default", x.args[1])
	case 3:
		return x.login(x.args[1], x.args[2])
	}
	return errStx
}

func (x *call) login(user, password string) any {
	want, known := x.s.users[user]
	if user == "default" && want == "" {
		known, want = true, password
	}
	if !known || want != password {
		return Err("WRONGPASS invalid username-password pair or user is disabled.")
	}
	x.c.authed = true
	return ok
}

func selectDB(x *call) any {
	n, bad := x.int64At(1)
	if bad != nil {
		return bad
	}
	if n < 0 || int(n) >= len(x.s.dbs) {
		return Err("ERR DB index is out of range")
	}
	x.c.db = int(n)
	return ok
}

func ping(x *call) any {
	switch {
	case len(x.args) > 2:
		return errArity("ping")
	case x.c.proto == 2 && x.c.subscriptions()+len(x.c.shards) > 0:
		return []any{"pong", strings.Join(x.args[1:], "")}
	case len(x.args) == 2:
		return x.args[1]
	}
	return Status("PONG")
}

func quit(x *call) any {
	x.c.leaving = true
	return ok
}

func reset(x *call) any {
	c := x.c
	c.tx = nil
	c.unwatch()
	c.unsubscribeAll()
	c.proto, c.db, c.name, c.authed = 2, 0, "", c.s.users["default"] == ""
	return Status("RESET")
}

func clientName(x *call) any {
	if x.c.name == "" {
		return nil
	}
	return x.c.name
}

func clientSetName(x *call) any { return x.c.rename(x.args[2]) }

func (c *conn) rename(name string) any {
	for _, b := range []byte(name) {
		if b < '!' || b > '~' {
			return Err("ERR Client names cannot contain spaces, newlines or special characters.")
		}
	}
	c.name = name
	return ok
}

func (c *conn) line() string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=%d sub=%d psub=%d ssub=%d multi=-1 user=default resp=%d\n",
		c.id, c.mem.remote.addr, c.mem.local.addr, c.name, c.db, len(c.channels), len(c.patterns), len(c.shards), c.proto)
}

func clientList(x *call) any {
	text := ""
	for _, id := range slices.Sorted(maps.Keys(x.s.conns)) {
		text += x.s.conns[id].line()
	}
	return verbatim(text)
}

// clientKill knows the forms CLIENT KILL addr, ID id, ADDR addr, TYPE type and SKIPME yes|no.
func clientKill(x *call) any {
	if len(x.args) == 3 {
		if x.kill("ADDR", x.args[2], false) == 0 {
			return Err("ERR No such client")
		}
		return ok
	}
	kind, value, skipMe := "", "", true
	for words := x.args[2:]; len(words) > 0; words = words[2:] {
		switch {
		case len(words) == 1:
			return errStx
		case isAny(words[0], "SKIPME"):
			skipMe = isAny(words[1], "YES")
		case isAny(words[0], "TYPE") && !isAny(words[1], "NORMAL", "PUBSUB", "MASTER", "REPLICA", "SLAVE"):
			return Err("ERR Unknown client type '" + words[1] + "'")
		case isAny(words[0], "ID", "ADDR", "TYPE"):
			kind, value = strings.ToUpper(words[0]), words[1]
		default:
			return errStx
		}
	}
	return x.kill(kind, value, skipMe)
}

// kind is the TYPE of the connection for CLIENT KILL.
func (c *conn) kind() string {
	if c.subscriptions()+len(c.shards) > 0 {
		return "PUBSUB"
	}
	return "NORMAL"
}

func (x *call) kill(kind, value string, skipMe bool) int {
	n := 0
	for _, c := range x.s.conns {
		switch {
		case skipMe && c == x.c,
			kind == "ID" && value != strconv.FormatInt(c.id, 10),
			kind == "ADDR" && value != c.mem.remote.addr,
			kind == "TYPE" && !isAny(value, c.kind()):
			continue
		}
		n++
		if c == x.c {
			c.leaving = true
			continue
		}
		x.s.killLocked(c, false)
	}
	return n
}
