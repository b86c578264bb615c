package simulation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// isMoment reports whether an argument is a time in ms since 1970, of today or of virtual time: the last moment of a script.
func isMoment(arg string) bool {
	return len(arg) > 11 && len(arg) < 14 && strings.Trim(arg, "0123456789") == ""
}

// timeless are scripts that get a last moment, and do not need it: the acquire of a countdown latch changes nothing, and permits once given
// back are never taken again under their ids.
var timeless = []string{"Countdown latch, acquire", "Permit semaphore, release"}

// judgeLate fails for a script that does something after its last moment, or refuses before.
func (w *world) judgeLate(title string, c *fakeredis.Call, reply any) {
	i := slices.IndexFunc(c.Args, isMoment)
	if i < 0 || slices.Contains(timeless, title) || strings.HasPrefix(title, "apart: ") || strings.HasPrefix(title, "redisson ") {
		return
	}
	if _, failed := reply.(fakeredis.Err); failed {
		return
	}
	last, _ := strconv.ParseInt(c.Args[i], 10, 64)
	status, _ := reply.(fakeredis.Status)
	if by := millis(c) - last; by > 0 != strings.HasPrefix(string(status), "late ") {
		w.violate(nil, "%s %d ms after its last moment: %v", title, by, reply)
	}
}
