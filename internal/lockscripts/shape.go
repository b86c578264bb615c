package lockscripts

import (
	"regexp"
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

// groupField matches a field of a faster multi lock behind a value.
var groupField = regexp.MustCompile(`^([0-9A-Za-z+/]{22})(?::(.+):(?:expire_time|lock_count))?$`)

// isGroup reports whether a hash has the fields of a faster multi lock, and more than one.
func isGroup(hash map[string]string) bool {
	for field, text := range hash {
		parts := groupField.FindStringSubmatch(field)
		if parts == nil || parts[2] == "" && !isHolder(text, "1") || parts[2] != "" && !isHolder(parts[2], text) {
			return false
		}
	}
	return len(hash) > 1
}

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
