package kinds

import (
	"strconv"
	"strings"
)

// The prefixes and suffixes of the keys and channels that Redisson derives from the name of a lock. No other file
// builds such names.
const (
	channelPrefix   = "redisson_lock__channel"
	readWritePrefix = "redisson_rwlock"

	semaphorePrefix = "redisson_sc"
	countdownPrefix = "redisson_countdownlatch__channel__"
	permitsSuffix   = "timeout"
	tokenPrefix     = "redisson_lock_token"
	queuePrefix     = "redisson_lock_queue"
	timeoutPrefix   = "redisson_lock_timeout"
	idlePrefix      = "lockwire_fair_head" // not in Redisson

	linePrefix = "lockwire_line" // not in Redisson
)

// LatchPrefix begins the keys in which the server remembers requests.
const LatchPrefix = "redisson_unlock_latch"

// ForcedChannel announces names of locks freed by force to the clients of this package. Redisson does not know it.
const ForcedChannel = "lockwire_forced"

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

// AppendLatch appends the beginning of the keys of a lock's latches; a request id completes the key.
func AppendLatch(dst []byte, name string) []byte {
	dst = append(dst, LatchPrefix...)
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

// ReadLeases returns the lease keys of a reader's first n holds.
func ReadLeases(name, owner string, n int64) []string {
	prefix := suffixName(name, owner) + ":rwlock_timeout:"
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i+1)
	}
	return keys
}

// ShapeKeys returns the KEYS of [Shape].
func ShapeKeys(name string) []string {
	return []string{name, prefixName(tokenPrefix, name), prefixName(queuePrefix, name), suffixName(name, permitsSuffix)}
}

// LineKey returns the key of the line of waiting processes.
func LineKey(name string) string { return prefixName(linePrefix, name) }

func tokenKey(name string) string { return prefixName(tokenPrefix, name) }

// fairKeys returns the keys of the queue.
func fairKeys(name string) []string {
	return []string{prefixName(queuePrefix, name), prefixName(timeoutPrefix, name), prefixName(idlePrefix, name)}
}

func lockChannel(name string) string { return prefixName(channelPrefix, name) }

func semaphoreChannel(name string) string { return prefixName(semaphorePrefix, name) }

// permitsKeys returns the key of the sorted set of taken permits.
func permitsKeys(name string) []string { return []string{suffixName(name, permitsSuffix)} }

// countDownChannel wraps every name, even a name with braces: see lock.CountDownLatch.
func countDownChannel(name string) string { return countdownPrefix + "{" + name + "}" }
func readWriteChannel(name string) string { return prefixName(readWritePrefix, name) }

func readWriteKeys(name string) []string { return []string{prefixName(writersPrefix, name)} }
