package lock

import "strings"

// checkName rejects names for which the rule of prefixes would produce another hash slot. By the Redis cluster specification,
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
