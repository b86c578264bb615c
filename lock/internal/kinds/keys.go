package kinds

import (
	"strconv"
	"strings"
)

// The prefixes and suffixes of the keys and channels that Redisson derives from the name of a lock. Only this file builds such
// names.
const (
	channelPrefix   = "redisson_lock__channel"
	readWritePrefix = "redisson_rwlock"

	semaphorePrefix = "redisson_sc"
	countdownPrefix = "redisson_countdownlatch__channel__"
	permitsSuffix   = "timeout"
	tokenPrefix     = "redisson_lock_token"
	queuePrefix     = "redisson_lock_queue"
	timeoutPrefix   = "redisson_lock_timeout"
	fairHeadPrefix  = "lockwire_fair_head" // not in Redisson

	linePrefix = "lockwire_line" // not in Redisson
)

// LatchPrefix begins the keys in which the server remembers requests.
const LatchPrefix = "redisson_unlock_latch"

// ForcedChannel announces names of locks freed by force to the clients of this package. Redisson does not know it.
const ForcedChannel = "lockwire_forced"

// ShorterMessage tells the waiters of a lock, on its channel, that the lease became shorter. Redisson's clients ignore it.
const ShorterMessage = "2"

// writersPrefix is the prefix of a key unknown to Redisson.
const writersPrefix = "lockwire_rwlock_writers"

// appendPrefixed applies Redisson's rule for prefixed names: a name with a brace is assumed to have its own hash tag, and
// any other name becomes the tag.
func appendPrefixed(dst []byte, prefix, name string) []byte {
	dst = append(append(dst, prefix...), ':')
	if strings.Contains(name, "{") {
		return append(dst, name...)
	}
	return append(append(append(dst, '{'), name...), '}')
}

func prefixName(prefix, name string) string {
	var buf [128]byte
	return string(appendPrefixed(buf[:0], prefix, name))
}

// AppendLatch appends the beginning of the keys of a lock's latches; a request id completes the key.
func AppendLatch(dst []byte, name string) []byte {
	return append(appendPrefixed(dst, LatchPrefix, name), ':')
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

func tokenKey(name string) string { return prefixName(tokenPrefix, name) }

// Queue returns the key of the list of those who wait for a fair lock.
func Queue(name string) string { return prefixName(queuePrefix, name) }

// fairKeys returns the keys of the queue.
func fairKeys(name string) []string {
	return []string{Queue(name), prefixName(timeoutPrefix, name), prefixName(fairHeadPrefix, name)}
}

// ChannelAndLine returns the lock's channel and the key of its line of waiting processes, "" for none, in one allocation.
func (k *Kind) ChannelAndLine(name string) (channel, line string) {
	var buf [256]byte
	text := appendPrefixed(buf[:0], k.channel, name)
	if k.channel == countdownPrefix { // wraps every name, even a name with braces: see lock.CountDownLatch
		text = append(append(append(append(buf[:0], countdownPrefix...), '{'), name...), '}')
	}
	length := len(text)
	if k.Quit != nil {
		text = appendPrefixed(text, linePrefix, name)
	}
	both := string(text)
	return both[:length], both[length:]
}

// permitsKeys returns the key of the sorted set of taken permits.
func permitsKeys(name string) []string { return []string{suffixName(name, permitsSuffix)} }

func readWriteKeys(name string) []string { return []string{prefixName(writersPrefix, name)} }

// ownPrefixes begin, with a colon behind, the names of keys that belong to a lock, and are no locks.
var ownPrefixes = []string{tokenPrefix, queuePrefix, timeoutPrefix, fairHeadPrefix, linePrefix, writersPrefix}

// WatchPatterns returns the patterns of the channels with news of the locks with names matching the glob pattern: the events of
// keys of the database db, and with messages also the channels that wake waiters.
func WatchPatterns(db int, pattern string, messages bool) []string {
	keys := keyspacePrefix(db)
	list := []string{keys + pattern, ForcedChannel}
	if pattern != "*" { // matches the latches too
		list = append(list, keys+LatchPrefix+":{"+pattern+"}:*", keys+LatchPrefix+":"+pattern+":*")
	}
	if !messages {
		return list
	}
	for _, prefix := range []string{channelPrefix, readWritePrefix, semaphorePrefix} {
		list = append(list, prefix+":{"+pattern+"}", prefix+":{"+pattern+"}:*", prefix+":"+pattern)
	}
	return list
}

// Sign is the meaning of a message about a lock.
type Sign int

const (
	Nothing  Sign = iota
	Written       // the key has changed, and exists
	Deleted       // the key was deleted
	TimedOut      // the key has expired
	Evicted       // the key was deleted for lack of memory
	Released      // an Unlock has succeeded
	Woken         // a wake-up of waiters: the lock may be free
	Freed         // the lock was freed by force
)

// ReadSign returns the name of the lock of a message, and the meaning of the message.
func ReadSign(db int, channel, payload string) (name string, sign Sign) {
	if channel == ForcedChannel {
		return payload, Freed
	}
	if key, ok := strings.CutPrefix(channel, keyspacePrefix(db)); ok {
		return readEvent(key, payload)
	}
	for _, prefix := range []string{channelPrefix, readWritePrefix, semaphorePrefix} {
		if rest, ok := strings.CutPrefix(channel, prefix+":"); ok {
			if payload == ShorterMessage && prefix != semaphorePrefix {
				return "", Nothing
			}
			return unwrap(withoutClient(rest)), Woken
		}
	}
	return "", Nothing
}

// readEvent is ReadSign for an event of a key.
func readEvent(key, event string) (name string, sign Sign) {
	if latch, ok := strings.CutPrefix(key, LatchPrefix+":"); ok {
		if end := strings.LastIndexByte(latch, ':'); end > 0 && event == "set" {
			return unwrap(latch[:end]), Released
		}
		return "", Nothing
	}
	for _, prefix := range ownPrefixes {
		if rest, ok := strings.CutPrefix(key, prefix); ok && strings.HasPrefix(rest, ":") {
			return "", Nothing
		}
	}
	switch event {
	case "expire", "persist":
		return "", Nothing
	case "del", "rename_from", "move_from":
		return key, Deleted
	case "expired":
		return key, TimedOut
	case "evicted":
		return key, Evicted
	}
	return key, Written
}

func keyspacePrefix(db int) string { return "__keyspace@" + strconv.Itoa(db) + "__:" }

// unwrap undoes prefixName.
func unwrap(rest string) string {
	if inner, ok := strings.CutPrefix(rest, "{"); ok {
		if inner, ok = strings.CutSuffix(inner, "}"); ok && !strings.ContainsAny(inner, "{}") {
			return inner
		}
	}
	return rest
}

// Braced returns the name whose latches and channels are those of the lock name too: "{job}" for "job". ReadSign returns the latter.
func Braced(name string) string { return "{" + name + "}" }

// withoutClient removes the id of a client, and the rest after the id, from the end of a channel's name.
func withoutClient(rest string) string {
	for i := range len(rest) {
		if id := rest[i+1:]; rest[i] == ':' && len(id) >= 36 && (len(id) == 36 || id[36] == ':') && isUUID(id[:36]) {
			return rest[:i]
		}
	}
	return rest
}

func isUUID(s string) bool {
	for i := range len(s) {
		if hyphen := i == 8 || i == 13 || i == 18 || i == 23; hyphen != (s[i] == '-') || !hyphen && !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return true
}
