// Package leader elects a leader among the processes calling [Run] with the same name, and runs a function in the leader.
//
//	err := leader.Run(ctx, locks, "billing", leader.Config{Address: "10.0.0.7:8080"}, func(ctx context.Context) error {
//		return serve(ctx, leader.Token(ctx)) // until ctx ends
//	})
//
// The leader holds the lock.Fenced lock of the given name, so Redisson's getFencedLock(name) takes part in the election, and
// forcing the lock deposes the leader. The lease is Config.Lease of the lock.Client.
//
// # Guarantees
//
//   - The leader keeps the lock until its function has returned. A function ignoring the end of the context keeps the
//     lock for as long as the process renews the lease; [Health.Check] reports such a function.
//   - Without renewal of the lease, the function's context ends Config.StopBefore before the lease. Two functions are
//     never active at once if each returns within that time and no process is suspended.
//   - Resources can refuse a suspended leader by the [Token], which grows from leader to leader. See package fence.
//   - After a loss Run campaigns again. Run ends with ctx, with the return of the function, and after an error beyond repair
//     by further attempts.
//
// # Schedules
//
// Processes that start the same job by their own clocks need no leader: the first of them gets the lock by TryLock with
// [lock.AtLeast], and the others find the lock taken even if the job takes no time.
//
// # On the server
//
// Beside the keys of the lock, the leader writes its owner, its address, its token and the time into lockwire_leader:{name}, and
// deletes the key when it steps down. After a crash the key stays until the next leader overwrites it, and [Observe]
// ignores it.
package leader
