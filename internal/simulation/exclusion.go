package simulation

// exclusion is an event after which the documentation does not promise that holders never overlap. An overlap after such an
// event is no violation; the report counts the overlaps explained by each exclusion.
type exclusion struct {
	name     string
	file     string // of the documentation, from the root of the repository
	mark     string // a word of the paragraph in the documentation
	sentence string
}

var (
	forced = &exclusion{"forced", "lock/force.go", "lockwire_forced",
		"A holder in this process is told at once, one of another client of this package within a second, by a message on the " +
			"channel lockwire_forced. Any other learns it at its next renewal or Check, and by the end of its lease at the latest; " +
			"until then it may go on believing that it has the lock."}
	deleted = &exclusion{"deleted", "DESIGN.md", "FLUSHALL",
		"Locks that are deleted by hand, by FLUSHALL, or by Redisson's forceUnlock are missed by the next renewal."}
	clockJumped = &exclusion{"clock jumped", "RELIABILITY.md", "clock jumps",
		"One server: exclusive, except when the server loses data, its clock jumps, a key is deleted."}
	dataLost = &exclusion{"data lost", "DESIGN.md", "restarted",
		"A server that was restarted, or replaced, may have forgotten what it granted."}
	away = &exclusion{"replica away", "lock/config.go", "A failover can still lose a lock",
		"A failover can still lose a lock, to a replica that was down or incompletely synchronized and becomes the master as soon " +
			"as it returns."}
	formerMaster = &exclusion{"former master", "DESIGN.md", "A former master cut off from the sentinels says",
		"A former master cut off from the sentinels says master, too, and so do sentinels on its side of the cut. An answer with an " +
			"older epoch is used only when nothing else leads to a master. There a lock is not to be found that the new master has."}
	outdatedSentinel = &exclusion{"outdated sentinel", "RELIABILITY.md", "a sentinel that stood still through a failover",
		"A sentinel that stood still through a failover may make the new master a replica of the former one: it reads what the servers said " +
			"before it notices the time. The new master's data are replaced."}
	unacknowledged = &exclusion{"not acknowledged", "RELIABILITY.md", "a failover loses what no replica has acknowledged",
		"A failover loses what no replica has acknowledged. Nobody acknowledges changes of a Semaphore or a CountDownLatch, nor the rest of AtLeast."}
)

var slotOpen = &exclusion{"slot open", "RELIABILITY.md", "a failover while a slot migrates",
	"A failover while a slot migrates leaves the new master without the state of the slot: it may not know what has been moved. " +
		"A node that was not reached when a slot moved may talk a restarted node out of it, which then deletes its keys."}

// exclusions are all exclusions.
var exclusions = []*exclusion{forced, deleted, dataLost, clockJumped, away, formerMaster, outdatedSentinel, unacknowledged, slotOpen}
