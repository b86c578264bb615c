// Package lock is Redisson's distributed locks for Go: a Go process and a Java process that uses Redisson contend for
// the same lock, wake each other, and respect each other's leases.
//
// A [Client] holds the shared state of the locks of one process: the identity of their owners, the subscription that
// wakes waiters, and the watchdog that renews leases. A lock object, [Reentrant] for one, is an immutable description,
// shared by any number of goroutines. A [Lease] is a held lock.
//
//	locks, err := lock.New(pool, lock.Config{})
//	...
//	lease, err := locks.Reentrant("orders").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(ctx)
//	work, cancel := lease.Context(ctx)
//	defer cancel()
//	return process(work) // work ends with a *LostError as its cause if the lock is lost
//
// # Leases
//
// Every lock has a lease on the server, so that the lock of a dead process becomes free. Without [For], the lease is
// Config.Lease, and a watchdog renews the lease every third of that time while the lock is held. With For, the lease is
// fixed and never renewed.
//
// A lease can be lost while its holder works:
//
//   - the server cannot be reached for longer than the lease,
//   - the process was stopped for longer than the lease,
//   - somebody forced the lock.
//
// [Lease.Context], [Lease.Lost] and [Lease.Err] report the loss, no later than [Lease.ValidUntil], which lies before
// the instant at which the server gives the lock away. The time counts from before the lock was requested, on a clock
// that continues while the machine sleeps.
//
// A report is not a guarantee: a process may be stopped between the check and the work. Work that must be safe even
// then needs a check at the place of its effect, for example of a [Fenced] lock's token.
//
// # Owners
//
// Each Lease has an owner of its own, so a second Lock of the same name waits for the first, in the same goroutine as
// in any other. Use an [Owner] for a reentrant lock: Lock with [As] and the same Owner takes a further hold of a lock
// that the Owner has. [Reentrant], [Fair], [Fenced], [Spin] and non-reentrant locks of one name are the same lock, and
// share an Owner's holds.
//
// # Semaphores and latches
//
// A [PermitSemaphore] has permits, each held by a Lease. The permits of a [Semaphore] have neither lease nor owner, and
// nobody holds a [CountDownLatch]. A change of a count is applied once, even if the reply is lost and the client sends
// the change again.
//
// # Waiting
//
// In each process one waiter per lock talks to the server, and the others stand behind the first in order of arrival.
// The release wakes the first waiter, which also tries again when the holder's lease ends, so a lost wake-up costs time
// and never the lock.
//
// Processes that wait for a [Reentrant], [NonReentrant], [Fenced] or [ReadWrite] lock or for permits stand in a line on the
// server, and each has its turn: a release calls the first, and for 100 ms no other client of this package takes the lock.
// Redisson's clients have one turn together, as long as any of them waits. Processes that want a value of a [FasterMulti] in common
// have turns while no client of Redisson waits for the group. Those that wait for a [Redlock] stand at its first server. A [Fair]
// lock has Redisson's queue. The release of any other kind wakes one waiter of each process. Waiters for [Spin] and [Plain] locks are
// not woken: they ask again and again.
package lock
