package lock

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// AtLeast keeps the lock taken until d after the grant, even if Unlock comes earlier: for a job that all processes start by
// their own clocks, and that only one of them may run. Unlock before that time ends the lease of the caller, but leaves the
// lock taken on the server, with the rest of d as its lease and an owner that belongs to no caller. All callers find the lock
// taken until then: callers of this process, and Redisson's clients too. [Handle.ForceUnlock] ends the rest early.
//
// The lock stays for a little longer than d: for as long as the request of Unlock is on its way, which is some seconds at
// most, if a connection breaks meanwhile.
//
// d must be longer than the clocks of the processes differ, and shorter than the pause between two runs. 0 is no time. The
// result is [ErrInvalid] if d is longer than the lease set by [For] or the limit set by [AtMost], for an [Owner], for a
// lease with Members, and for kinds other than Reentrant, NonReentrant, Fenced, Spin and Plain.
//
// AtLeast changes only what Unlock does. Without an Unlock the lock stays for its lease, as any other:
//
//   - After the death of its holder the lock may be free before d, for another process to run the job.
//   - The same is true after Unlock has returned [ErrUncertain], and after a failover to a server that does not know of
//     the Unlock.
//   - Unlock of a lost lease keeps nothing, unless the server still has the lock.
func AtLeast(d time.Duration) Option { return Option{limit: atLeast, limitValue: d} }

// keepFor returns how long AtLeast keeps the lock taken after a release now; 0 if not at all.
func (l *Lease) keepFor() time.Duration {
	if l.limits[atLeast] == 0 {
		return 0
	}
	return max(0, l.limits[atLeast]-l.grantedAt.Elapsed(l.client.now()))
}

// successor returns the owner of the lock while AtLeast keeps it after the release of l. It has the id of this client and the
// number of l's owner, but negative; the value of a plain lock gets an ending.
func (l *Lease) successor() string {
	id, number, numbered := strings.Cut(l.owner, ":")
	if !numbered {
		return l.owner + plainRest
	}
	return id + ":-" + number
}

// plainRest ends the value of a plain lock that AtLeast keeps taken.
const plainRest = "-rest"

// predecessor returns the owner of the lease whose successor is owner. ok is false if owner is no successor.
func predecessor(owner string) (former string, ok bool) {
	if value, ok := strings.CutSuffix(owner, plainRest); ok && len(value) == hex.EncodedLen(plainSize) {
		return value, true
	}
	id, number, ok := strings.Cut(owner, ":-")
	if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
		return "", false
	}
	return id + ":" + number, true
}
