package simulation

// exclusion is something after which the documentation does not promise that holders never overlap. A violation that one
// explains is none; the report counts how often each was made use of.
type exclusion struct {
	name     string
	file     string // where the documentation says so, from the root of the repository
	sentence string
}

var (
	forced = &exclusion{"forced", "lock/handle.go",
		"A holder in this process is told at once, one of another client of this package within a second, by a message on the " +
			"channel lockwire_forced. Any other learns it at its next renewal or Check, and by the end of its lease at the latest; " +
			"until then it may go on believing that it has the lock."}
	deleted = &exclusion{"deleted", "DESIGN.md",
		"Locks that are deleted by hand, by FLUSHALL, or by Redisson's forceUnlock are missed by the next renewal."}
	dataLost = &exclusion{"data lost", "DESIGN.md",
		"A server that was restarted, or replaced, may have forgotten what it granted."}
)

// exclusions are all of them.
var exclusions = []*exclusion{forced, deleted, dataLost}
