package lockscripts

import (
	"slices"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func modelShape(c *fakeredis.Call) any {
	key, token, queue, permits := c.Keys[0], c.Keys[1], c.Keys[2], c.Keys[3]
	if typeOf(c, key) == "hash" {
		switch mode, shaped := hashShape(Fields(c, key)); {
		case isGroup(Fields(c, key)):
			return "fastermulti"
		case !shaped:
			return ""
		case mode:
			return "readwrite"
		case typeOf(c, token) == "string" && digits(c.Do("GET", token).(string)):
			return "fenced"
		case typeOf(c, queue) == "list":
			return "fair"
		}
		return "lock"
	}
	if typeOf(c, key) != "string" || c.Int("STRLEN", key) > 64 {
		return ""
	}
	value := c.Do("GET", key).(string)
	switch {
	case strings.HasPrefix(key, "redisson_") || isTimeout(key):
		return ""
	case digits(strings.TrimPrefix(value, "-")):
		if typeOf(c, permits) == "zset" {
			return "permits"
		}
		return ""
	case random(value) && c.Int("PTTL", key) > 0:
		return "plain"
	}
	return ""
}

func typeOf(c *fakeredis.Call, key string) string {
	name, _ := c.Do("TYPE", key).(fakeredis.Status)
	return string(name)
}

// hashShape reports whether a hash is a lock, and whether it is a read-write lock.
func hashShape(hash map[string]string) (readWrite, shaped bool) {
	mode, readWrite := hash["mode"]
	if !readWrite && len(hash) != 1 || readWrite && mode != "read" && mode != "write" {
		return readWrite, false
	}
	for owner, count := range hash {
		if readWrite {
			owner = strings.TrimSuffix(owner, ":write")
		}
		if owner != "mode" && !isHolder(owner, count) {
			return readWrite, false
		}
	}
	return readWrite, true
}

// isGroup reports whether a hash has the fields of a faster multi lock, and more than one.
func isGroup(hash map[string]string) bool {
	for field, text := range hash {
		value, rest, more := strings.Cut(field, ":")
		owner, ends := strings.CutSuffix(rest, ":expire_time")
		owner, counts := strings.CutSuffix(owner, ":lock_count")
		switch {
		case len(value) != 22 || strings.ContainsFunc(value, func(r rune) bool { return !strings.ContainsRune(base64, r) }):
			return false
		case more && (ends == counts || !isHolder(owner, text)), !more && !isHolder(text, "1"):
			return false
		}
	}
	return len(hash) > 1
}

const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// isHolder reports whether owner is five groups of hexadecimal digits and a number, and count is a number.
func isHolder(owner, count string) bool {
	id, number, ok := strings.Cut(owner, ":")
	return ok && groups(id) && digits(strings.TrimPrefix(number, "-")) && digits(count)
}

func groups(id string) bool {
	parts := strings.Split(id, "-")
	return len(parts) == 5 && !slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.Trim(p, "0123456789abcdefABCDEF") != ""
	})
}

func isTimeout(key string) bool {
	i := strings.LastIndex(key, ":rwlock_timeout:")
	return i >= 0 && digits(key[i+len(":rwlock_timeout:"):])
}

// random reports whether value looks like the random value of a plain lock.
func random(value string) bool {
	if isHolder(value, "1") || groups(value) {
		return true
	}
	body := strings.TrimSuffix(strings.TrimSuffix(value, "="), "=")
	letters, numbers := false, false
	for _, r := range []byte(body) {
		switch {
		case r >= '0' && r <= '9':
			numbers = true
		case r|0x20 >= 'a' && r|0x20 <= 'z':
			letters = true
		case !strings.ContainsRune("+/_-", rune(r)):
			return false
		}
	}
	return letters && numbers && len(value) >= 22
}
