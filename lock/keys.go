package lock

import (
	"strconv"
	"strings"
)

// The names that Redisson derives from the name of a lock. No other file makes one.
const (
	channelPrefix   = "redisson_lock__channel"
	latchPrefix     = "redisson_unlock_latch"
	readWritePrefix = "redisson_rwlock"

	semaphorePrefix = "redisson_sc"
	countdownPrefix = "redisson_countdownlatch__channel__"
	permitsSuffix   = "timeout"
	tokenPrefix     = "redisson_lock_token"
	queuePrefix     = "redisson_lock_queue"
	timeoutPrefix   = "redisson_lock_timeout"
	idlePrefix      = "lockwire_fair_head" // ours alone

	// forcedChannel is where clients of this package tell each other that they have freed a lock by force: its name.
	forcedChannel = "lockwire_forced"
)

// writersPrefix is for a key that Redisson does not know.
const writersPrefix = "lockwire_rwlock_writers"

// prefixName is Redisson's rule for a name in front of which something stands: a name with a brace is taken to have a hash
// tag of its own, any other becomes the tag.
func prefixName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// appendLatch appends what a request id makes the key of one request.
func appendLatch(dst []byte, name string) []byte {
	dst = append(dst, latchPrefix...)
	if strings.Contains(name, "{") {
		dst = append(append(dst, ':'), name...)
	} else {
		dst = append(append(append(dst, ":{"...), name...), '}')
	}
	return append(dst, ':')
}

// suffixName is the same rule for a name that something stands behind.
func suffixName(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// readLeases returns the keys of the leases of a reader's first n holds.
func readLeases(name, owner string, n int64) []string {
	prefix := suffixName(name, owner) + ":rwlock_timeout:"
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i+1)
	}
	return keys
}

// shapeKeys returns the keys that tell of which kind the lock of that name is.
func shapeKeys(name string) []string {
	return []string{name, prefixName(tokenPrefix, name), prefixName(queuePrefix, name), suffixName(name, permitsSuffix)}
}

func lockChannel(name string) string { return prefixName(channelPrefix, name) }

func semaphoreChannel(name string) string { return prefixName(semaphorePrefix, name) }

// permitsKeys returns the key of the sorted set with the ids of the permits that are taken.
func permitsKeys(name string) []string { return []string{suffixName(name, permitsSuffix)} }

// countdownChannel wraps every name, also one that has braces: see checkCountdown.
func countdownChannel(name string) string { return countdownPrefix + "{" + name + "}" }
func readWriteChannel(name string) string { return prefixName(readWritePrefix, name) }

func readWriteKeys(name string) []string { return []string{prefixName(writersPrefix, name)} }

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

// checkCountdown refuses all names with braces: Redisson puts more braces around them, so that the channel of such a latch
// has another hash tag than its key.
func checkCountdown(name string) error {
	if strings.ContainsAny(name, "{}") {
		return invalidf("the channel of a countdown latch is in another hash slot if the name has braces")
	}
	return checkName(name)
}
