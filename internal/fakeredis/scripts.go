package fakeredis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

func scriptCommands() []command {
	const flag = notScript | onWrite
	return []command{
		{name: "eval", arity: -3, flags: flag, run: func(x *call) any { return eval(x, false) }},
		{name: "eval_ro", arity: -3, flags: flag, run: func(x *call) any { return eval(x, true) }},
		{name: "evalsha", arity: -3, flags: flag, run: func(x *call) any { return evalSHA(x, false) }},
		{name: "evalsha_ro", arity: -3, flags: flag, run: func(x *call) any { return evalSHA(x, true) }},
		{name: "script|load", arity: 3, flags: flag, run: scriptLoad},
		{name: "script|exists", arity: -3, flags: flag, run: scriptExists},
		{name: "script|flush", arity: -2, flags: flag, run: scriptFlush},
		{name: "script|kill", arity: 2, flags: flag, run: func(*call) any {
			return Err("NOTBUSY No scripts in execution right now.")
		}},
	}
}

// script is a script known to the server: loaded, and not flushed since.
type script struct {
	digest string
	run    func(*Call) any
}

// Script registers the effect of the script with a source. EVALSHA knows the script after EVAL or SCRIPT LOAD, until SCRIPT
// FLUSH or [Server.Restart]; the registration stays. The result of run is the script's reply: int, int64, string (a bulk
// string), bool (1 or null, as in Lua), nil, []any, []string, Status or Err.
//
// run is an atomic step among the commands of all connections. It must call only its Call, not the Server.
func (s *Server) Script(source string, run func(*Call) any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[source] = run
}

// Digest returns the name of a script for EVALSHA: the SHA-1 of its source in lower case.
func Digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// Call is a run of a script.
type Call struct {
	Keys, Args []string
	Touch      func(tries bool, args []string) // called before each command, with the use of TryDo; nil: never

	x        *call
	c        *conn // of its commands
	digest   string
	readOnly bool
	wrote    bool
	slot     int // 1 + the slot of the keys, in a cluster; 0: none so far
}

// abort ends a script from inside Do.
type abort struct{ err Err }

// Do runs a command, as redis.call does: an error reply ends the script and is its reply. The result is an int64, a
// string, nil, a []any or a Status. Names of commands may be in any case.
func (c *Call) Do(args ...string) any {
	reply := c.run(false, args)
	if err, failed := reply.(Err); failed {
		panic(abort{err + Err(" script: "+c.digest+", on @user_script:1.")})
	}
	return reply
}

// TryDo is Do as redis.pcall does it: an error reply is a result of type Err.
func (c *Call) TryDo(args ...string) any { return c.run(true, args) }

func (c *Call) run(tries bool, args []string) any {
	if c.Touch != nil {
		c.Touch(tries, args)
	}
	cmd, bad := c.x.s.lookup(args)
	switch {
	case strings.HasPrefix(string(bad), "ERR wrong number"):
		return Err("ERR Wrong number of args calling Redis command from script")
	case bad != "":
		return Err("ERR Unknown Redis command called from script")
	case cmd.flags&notScript != 0:
		return Err("ERR This Redis command is not allowed from script")
	case c.readOnly && cmd.flags&onWrite != 0:
		return Err("ERR Write commands are not allowed from read-only scripts.")
	case c.x.s.cluster != nil && c.foreign(cmd, args) != "":
		return c.foreign(cmd, args)
	case cmd.changesData() && c.x.s.repl.master != "":
		return errReadOnly
	case c.x.s.limited(cmd, true, c.wrote) != "":
		return c.x.s.limited(cmd, true, c.wrote)
	}
	c.wrote = c.wrote || cmd.changesData()
	inner := &call{s: c.x.s, c: c.c, db: c.x.db, cmd: cmd, args: args, now: c.x.now, inside: true}
	return plain(inner.do())
}

// Int is Do for a command with an integer reply, or a string of an integer; anything else is 0.
func (c *Call) Int(args ...string) int64 {
	switch v := c.Do(args...).(type) {
	case int64:
		return v
	case string:
		n, _ := parseInt(v)
		return n
	}
	return 0
}

// Publish publishes on a channel and returns how many connections got the message.
func (c *Call) Publish(channel, payload string) int64 { return c.Int("publish", channel, payload) }

// plain turns a reply into its form in RESP2, and so for a script.
func plain(reply any) any {
	list := func(in []any) any {
		out := make([]any, len(in))
		for i, v := range in {
			out[i] = plain(v)
		}
		return out
	}
	switch v := reply.(type) {
	case int:
		return int64(v)
	case float64:
		return formatFloat(v)
	case verbatim:
		return string(v)
	case nullArray, nothing, *block:
		return nil
	case []string:
		out := make([]any, len(v))
		for i, s := range v {
			out[i] = s
		}
		return out
	case []any:
		return list(v)
	case pairs:
		return list(v)
	case members:
		return list(v)
	}
	return reply
}

// fromScript turns a script's result into a reply.
func fromScript(v any) any {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fromScript(e)
		}
		return out
	}
	return v
}

func eval(x *call, readOnly bool) any {
	source := x.args[1]
	keys, bad := numKeys(x)
	if bad != nil {
		return bad
	}
	sc, bad := x.load(source)
	if bad != nil {
		return bad
	}
	return x.runScript(sc, keys, readOnly)
}

func evalSHA(x *call, readOnly bool) any {
	const unknown = Err("NOSCRIPT No matching script. Please use EVAL.")
	if len(x.args[1]) != 2*sha1.Size {
		return unknown
	}
	keys, bad := numKeys(x)
	if bad != nil {
		return bad
	}
	sc := x.s.scripts[strings.ToLower(x.args[1])]
	if sc == nil {
		return unknown
	}
	return x.runScript(sc, keys, readOnly)
}

func numKeys(x *call) (int, any) {
	n, bad := x.int64At(2)
	switch {
	case bad != nil:
		return 0, bad
	case n > int64(len(x.args)-3):
		return 0, Err("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return 0, Err("ERR Number of keys can't be negative")
	}
	return int(n), nil
}

// Interpret makes compile turn the source of an unregistered script into its effect; an error is the server's reply to a script
// that does not compile. The functions follow the rules for run of [Server.Script].
func (s *Server) Interpret(compile func(source string) (func(*Call) any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interpret = compile
}

// load makes a registered script known.
func (x *call) load(source string) (*script, any) {
	run := x.s.sources[source]
	if run == nil && x.s.interpret != nil {
		var err error
		if run, err = x.s.interpret(source); err != nil {
			return nil, Err("ERR Error compiling script (new function): " + err.Error())
		}
	}
	if run == nil {
		return nil, Err("ERR Error compiling script (new function): user_script:1: not registered with fakeredis")
	}
	sc := &script{digest: Digest(source), run: run}
	x.s.scripts[sc.digest] = sc
	return sc, nil
}

func (x *call) runScript(sc *script, keys int, readOnly bool) (reply any) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case abort:
			reply = r.err
		default:
			panic(r)
		}
	}()
	args := x.args[3:]
	return fromScript(sc.run(&Call{Keys: args[:keys:keys], Args: args[keys:], x: x, c: &conn{s: x.s, proto: 2, db: x.db.index}, digest: sc.digest, readOnly: readOnly}))
}

func scriptLoad(x *call) any {
	sc, bad := x.load(x.args[2])
	if bad != nil {
		return bad
	}
	return sc.digest
}

func scriptExists(x *call) any {
	known := []any{}
	for _, digest := range x.args[2:] {
		known = append(known, boolInt(x.s.scripts[strings.ToLower(digest)] != nil))
	}
	return known
}

func scriptFlush(x *call) any {
	if len(x.args) > 3 || len(x.args) == 3 && !isAny(x.args[2], "SYNC", "ASYNC") {
		return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	x.s.scripts = map[string]*script{}
	return ok
}
