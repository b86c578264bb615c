package lock

import "strings"

// The names that Redisson derives from the name of a lock. No other file makes one.
const (
	channelPrefix = "redisson_lock__channel"
	latchPrefix   = "redisson_unlock_latch"
	queuePrefix   = "redisson_lock_queue"
	timeoutPrefix = "redisson_lock_timeout"
	idlePrefix    = "lockwire_fair_head" // ours alone
)

// prefixName is Redisson's rule for a name in front of which something stands: a name with a brace is taken to have a hash
// tag of its own, any other becomes the tag.
func prefixName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

func lockChannel(name string) string { return prefixName(channelPrefix, name) }

// checkName refuses names from which prefixName makes one in another hash slot. The Redis cluster specification takes
// as tag what stands between the first { and the first } after it, unless that is empty.
func checkName(name string) error {
	if name == "" {
		return invalidf("empty name")
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.Contains(name, "}") {
			return invalidf("a name with } but no { breaks its hash tag")
		}
		return nil
	}
	switch strings.IndexByte(name[open:], '}') {
	case -1:
		return invalidf("a name with { but no } behind it breaks its hash tag")
	case 1:
		return invalidf("a name with {} as its first braces has an empty hash tag")
	}
	return nil
}
