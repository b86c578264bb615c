package cluster

import (
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// isRead reports whether a replica may run cmd: a known command that writes nothing, or is about the server itself. Of the
// scripts, only the _RO forms are reads, since the server refuses their writes. SCAN and its like are left out, because
// a cursor is valid only on one server.
func isRead(cmd *resp.Command) bool {
	var lower [longestName]byte
	switch string(lowerName(&lower, cmd.Arg(0))) {
	case "bitcount", "bitfield_ro", "bitpos", "dump", "exists", "expiretime", "get", "getbit", "getrange", "lcs", "memory", "mget",
		"object", "pexpiretime", "pfcount", "pttl", "sort_ro", "strlen", "substr", "ttl", "type":
	case "geodist", "geohash", "geopos", "georadius_ro", "georadiusbymember_ro", "geosearch":
	case "hexists", "hexpiretime", "hget", "hgetall", "hkeys", "hlen", "hmget", "hpexpiretime", "hpttl", "hrandfield", "hstrlen",
		"httl", "hvals":
	case "lindex", "llen", "lpos", "lrange", "xinfo", "xlen", "xpending", "xrange", "xread", "xrevrange":
	case "scard", "sdiff", "sinter", "sintercard", "sismember", "smembers", "smismember", "srandmember", "sunion":
	case "zcard", "zcount", "zdiff", "zinter", "zintercard", "zlexcount", "zmscore", "zrandmember", "zrange", "zrangebylex",
		"zrangebyscore", "zrank", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscore", "zunion":
	case "eval_ro", "evalsha_ro", "fcall_ro":
	case "dbsize", "echo", "info", "keys", "ping", "randomkey", "role", "time":
	case "script":
		return strings.EqualFold(cmd.Arg(1), "load") // the replica that is to run the script needs it
	default:
		return false
	}
	return true
}
