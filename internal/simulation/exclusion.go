package simulation

// exclusion is an event after which the documentation does not promise that holders never overlap. An overlap after such an event
// is no violation; the report counts the overlaps that each exclusion has explained.
type exclusion struct {
	name     string
	file     string // of the documentation, from the root of the repository
	mark     string // a word of the paragraph that says so
	sentence string
}

var (
	forced = &exclusion{"forced", "lock/handle.go", "lockwire_forced",
		"A holder in this process is told at once, one of another client of this package within a second, by a message on the " +
			"channel lockwire_forced. Any other learns it at its next renewal or Check, and by the end of its lease at the latest; " +
			"until then it may go on believing that it has the lock."}
	deleted = &exclusion{"deleted", "DESIGN.md", "FLUSHALL",
		"Locks that are deleted by hand, by FLUSHALL, or by Redisson's forceUnlock are missed by the next renewal."}
	dataLost = &exclusion{"data lost", "DESIGN.md", "restarted",
		"A server that was restarted, or replaced, may have forgotten what it granted."}
)

// exclusions are all of them.
var exclusions = []*exclusion{forced, deleted, dataLost}
