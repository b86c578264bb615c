package fakeredis

import (
	"slices"
	"strings"
	"time"
)

// Jump moves the server's clock by d, like a step of the machine's clock: TIME jumps, and keys lose or gain as much of their
// lives.
func (s *Server) Jump(d time.Duration) {
	s.ahead.Add(int64(d))
	s.set(func() {
		for i := range s.dbs {
			for _, e := range s.dbs[i].keys {
				if e.until != 0 {
					e.until = max(1, e.until-d.Milliseconds())
				}
			}
		}
	})
}

// Ahead is how far the server's clock is ahead. Ahead may be called inside the server.
func (s *Server) Ahead() time.Duration { return time.Duration(s.ahead.Load()) }

// Full makes the server refuse commands that may need memory, like a server at maxmemory without eviction. A script is refused
// before its first write, and not afterwards.
func (s *Server) Full(on bool) { s.set(func() { s.full = on }) }

// Deny takes the right to run some commands from the users of all connections, and restores the rights taken by an earlier
// call. Names are in lower case.
func (s *Server) Deny(commands ...string) { s.set(func() { s.denied = commands }) }

const errOOM = Err("OOM command not allowed when used memory > 'maxmemory'.")

// needsMemory are the commands refused by a full server.
var needsMemory = strings.Fields(`append blmove decr decrby hincrby hset hsetnx incr incrby lpush mset rpush sadd set setnx zadd zincrby`)

// limited is the refusal of a command by the limits of the server, "" for none. wrote: the script of the command has written.
func (s *Server) limited(cmd *command, inside, wrote bool) Err {
	switch {
	case slices.Contains(s.denied, cmd.name) && inside:
		return "ERR The user executing the script can't run this command or subcommand"
	case slices.Contains(s.denied, cmd.name):
		return Err("NOPERM this user has no permissions to run the '" + cmd.name + "' command")
	case s.full && !wrote && slices.Contains(needsMemory, cmd.name):
		return errOOM
	}
	return ""
}

// Allowed reports whether the user may run a command, as redis.acl_check_cmd does.
func (c *Call) Allowed(args ...string) bool {
	cmd, bad := c.x.s.lookup(args)
	return bad == "" && !slices.Contains(c.x.s.denied, cmd.name)
}
