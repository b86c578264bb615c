package cluster

import (
	"errors"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// anySlot is the route of a command without a key. Any master may serve the command.
const anySlot = -1

var (
	errOneNode = errors.New("it concerns the keys of one node: use Masters, or On with a key of that node")
	errAsking  = errors.New("the Cluster follows redirections itself")
)

// longestName is the length of the longest name in the tables of commands.
const longestName = len("georadiusbymember_ro")

// lowerName returns name in lower case, in buf. It returns nil for a name too long for the tables.
func lowerName(buf *[longestName]byte, name string) []byte {
	if len(name) > longestName {
		return nil
	}
	for i := range len(name) {
		if buf[i] = name[i]; 'A' <= name[i] && name[i] <= 'Z' {
			buf[i] |= 0x20
		}
	}
	return buf[:len(name)]
}

// firstKey returns the first key of a command, or false for a command without a key.
func firstKey(cmd *resp.Command) (key string, keyed bool, err error) {
	at := 1 // the index of the key; 0 for a command that any master may serve
	var lower [longestName]byte
	switch string(lowerName(&lower, cmd.Arg(0))) {
	case "bitop", "memory", "object", "xgroup", "xinfo", "pfdebug", "debug":
		at = 2
	case "lmpop", "msetex", "sintercard", "zdiff", "zinter", "zintercard", "zmpop", "zunion":
		at = afterCount(cmd, 1)
	case "blmpop", "bzmpop", "eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro":
		at = afterCount(cmd, 2)
	case "xread", "xreadgroup":
		at = afterWord(cmd, "STREAMS")
	case "migrate":
		if at = 3; cmd.Arg(3) == "" {
			at = afterWord(cmd, "KEYS")
		}
	case "acl", "bgrewriteaof", "bgsave", "client", "cluster", "command", "config", "discard", "echo", "exec", "failover",
		"function", "hello", "info", "lastsave", "latency", "lolwut", "module", "multi", "ping", "publish", "pubsub",
		"replicaof", "role", "save", "script", "shutdown", "slaveof", "slowlog", "time", "unwatch", "wait", "waitaof":
		at = 0
	case "dbsize", "flushall", "flushdb", "keys", "randomkey", "scan", "swapdb":
		return "", false, errOneNode // the reply is about the keys of one node
	case "asking":
		return "", false, errAsking
	}
	if at == 0 || at >= cmd.Len() {
		return "", false, nil
	}
	return cmd.Arg(at), true, nil
}

// afterCount returns the index after argument at, the number of keys. It returns 0 without keys.
func afterCount(cmd *resp.Command, at int) int {
	if n, err := strconv.Atoi(cmd.Arg(at)); err != nil || n < 1 {
		return 0
	}
	return at + 1
}

// afterWord returns the index after the keyword word, or 0 without the keyword. The arguments of
// GROUP, AUTH and AUTH2 are skipped: they may equal the keyword by chance.
func afterWord(cmd *resp.Command, word string) int {
	i, skip := -1, 0
	for arg := range cmd.Args() {
		i++
		switch {
		case skip > 0:
			skip--
		case i == 0:
		case strings.EqualFold(arg, word):
			return i + 1
		case strings.EqualFold(arg, "GROUP"), strings.EqualFold(arg, "AUTH2"):
			skip = 2
		case strings.EqualFold(arg, "AUTH"):
			skip = 1
		}
	}
	return 0
}

// routeOf returns the slot of a command's routing key or, without a routing key, of its first key; or the reason for refusing
// the command. number is that of netfail.Refusal.
func routeOf(cmd *resp.Command, number int) (slot int, err error) {
	key, keyed := cmd.Key()
	if err = cmd.Err(); err == nil && !keyed {
		key, keyed, err = firstKey(cmd)
	}
	switch {
	case err != nil:
		return 0, refused(commandName(cmd), number, err)
	case !keyed:
		return anySlot, nil
	}
	return Slot(key), nil
}

// commandName returns the name of a command for errors. A name with unusual characters becomes
// "command", so that an argument in the wrong position never appears in an error.
func commandName(cmd *resp.Command) string { return netfail.Op(cmd.Name()) }

// refused returns the error of a command that the Cluster refuses. number is that of netfail.Refusal.
func refused(name string, number int, reason error) error {
	return &conn.Error{Op: name, Err: netfail.Refusal{Reason: reason, Number: number}}
}
