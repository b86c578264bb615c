package lock

import (
	"strconv"
	"strings"
)

// The prefixes and suffixes of the keys and channels that Redisson derives from the name of a lock. No other file
// builds such names.
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
	idlePrefix      = "lockwire_fair_head" // not in Redisson

	linePrefix = "lockwire_line" // not in Redisson

	// forcedChannel announces names of locks freed by force to the clients of this package.
	forcedChannel = "lockwire_forced"
)

// writersPrefix is the prefix of a key unknown to Redisson.
const writersPrefix = "lockwire_rwlock_writers"

// prefixName applies Redisson's rule for prefixed names: a name with a brace is assumed to have its own hash tag, and
// any other name becomes the tag.
func prefixName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// appendLatch appends the prefix of latch keys; a request id completes the key.
func appendLatch(dst []byte, name string) []byte {
	dst = append(dst, latchPrefix...)
	if strings.Contains(name, "{") {
		dst = append(append(dst, ':'), name...)
	} else {
		dst = append(append(append(dst, ":{"...), name...), '}')
	}
	return append(dst, ':')
}

// suffixName applies the rule of prefixName to a suffix.
func suffixName(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// readLeases returns the lease keys of a reader's first n holds.
func readLeases(name, owner string, n int64) []string {
	prefix := suffixName(name, owner) + ":rwlock_timeout:"
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i+1)
	}
	return keys
}

// shapeKeys returns the keys whose presence reveals the kind of the lock.
func shapeKeys(name string) []string {
	return []string{name, prefixName(tokenPrefix, name), prefixName(queuePrefix, name), suffixName(name, permitsSuffix)}
}

func lockChannel(name string) string { return prefixName(channelPrefix, name) }

func semaphoreChannel(name string) string { return prefixName(semaphorePrefix, name) }

// permitsKeys returns the key of the sorted set of taken permits.
func permitsKeys(name string) []string { return []string{suffixName(name, permitsSuffix)} }

// countdownChannel wraps every name, even a name with braces: see checkCountdown.
func countdownChannel(name string) string { return countdownPrefix + "{" + name + "}" }
func readWriteChannel(name string) string { return prefixName(readWritePrefix, name) }

func readWriteKeys(name string) []string { return []string{prefixName(writersPrefix, name)} }

// checkName rejects names for which prefixName would produce another hash slot. By the Redis cluster specification,
// the hash tag is the text between the first { and the next }, unless empty.
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

// checkCountdown rejects all names with braces. Redisson wraps the name in another pair of braces, so the channel of
// such a latch would have another hash tag than its key.
func checkCountdown(name string) error {
	if strings.ContainsAny(name, "{}") {
		return invalidf("the channel of a countdown latch is in another hash slot if the name has braces")
	}
	return checkName(name)
}
