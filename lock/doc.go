// Package lock is Redisson's distributed locks for Go: a Go process and a Java process that uses Redisson contend for
// the same lock, wake each other, and respect each other's leases.
//
// A [Client] holds what the locks of one process share: the identity under which they are taken, the subscription that
// wakes waiters, and the watchdog that renews leases. A lock object, [Reentrant] for one, is an immutable description
// that any number of goroutines may share; what is held is a [Lease].
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
// Every lock has a lease on the server, so that the lock of a process that died becomes free. Without [For], the lease
// is that of the client's configuration and a watchdog renews it every third of that time for as long as the lock is
// held; with For, it is fixed and never renewed.
//
// A lease can be lost while its holder works: the server cannot be reached for longer than the lease, the process was
// stopped for longer, somebody forced the lock. The holder is told by [Lease.Context], [Lease.Lost] and [Lease.Err], and
// no later than [Lease.ValidUntil], which lies before the instant at which the server gives the lock away. That instant is
// measured from before the lock was asked for, on a clock that goes on while the machine sleeps.
//
// Being told is not a guarantee: a process may be stopped between the check and the work. What must be safe even then
// has to be checked where the effect happens.
//
// # Owners
//
// Each Lease has an owner of its own, so a second Lock of the same name waits for the first, in the same goroutine as
// in any other. Who wants a lock to be reentrant says so with an [Owner]: Lock with [As] the same Owner takes a further
// hold of a lock that this Owner has. Locks of one name are the same lock, and so are an Owner's holds of them, whether they
// are [Reentrant], [Fair], [Fenced], [Spin] or non-reentrant ones.
//
// # Semaphores and latches
//
// A [PermitSemaphore] has permits, each of which is held by a Lease. The permits of a [Semaphore] have neither lease nor owner,
// and a [CountDownLatch] nothing that is held. What is changed there, such as a count, is changed once even where the
// answer to it is lost and it has to be asked for again.
//
// # Waiting
//
// In each process one waiter for each lock talks to the server; the others stand behind it in the order in which they
// came. It is woken by the release, and looks again by itself when the holder's lease ends, so a wake-up that gets lost
// costs time and never the lock.
package lock
