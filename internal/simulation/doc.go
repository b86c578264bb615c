// Package simulation runs lock clients, a network and a server from one seed, in virtual time, and checks every lease.
//
// A third of the seeds have a single server, or in a fifth of them five servers and lock.Redlock, or in some three servers, each
// with some of the locks, and lock.Multi over them. A run has 3 to 6
// processes. Each process has a connection pool, or a cluster.Cluster, and a lock client, over a network in memory whose
// delays, losses and cuts the seed decides. In a third of the runs the clocks of processes are wrong by up to a minute. The server is package fakeredis; the Lua of the scripts runs in an interpreter.
// Workers take and release locks of all kinds under few names. In a third of the runs some processes are Redisson's (package
// redisson: its scripts, its watchdog, its way to wait), so that compatibility is tested together with the rest. First faults
// happen for 10 to 45 seconds: on the network, to processes and to the server. Then all is sound for 40 seconds, the workers
// end, and all clients are closed.
//
// A third of the seeds have a master, two replicas and three sentinels, with a private network between all six, and half of these may get a third
// replica, unknown to the sentinels at first. Any of them hangs, dies, comes back with its data or without, is cut off from some peers in either direction or both, or hears everything
// late. Clients are cut off from some servers. Clients ask for the default acknowledgements. A lease is good if the server
// named by the newest configuration of the sentinels has the lease. After such a storm all is sound for 75 seconds.
//
// A third have a cluster: three masters with a replica each. The nodes ping each peer through a private network, elect, and
// believe the claim with the larger epoch, as Redis does. Nodes fail as above, replicas take over or change to another master on command, and slots of
// locks move between shards, some with keys on both sides for longer than a lease. A lease is good on the node with the slot by
// the largest epoch, or on the target of a moving slot. All is sound for 60 seconds afterwards.
//
// # Checks
//
//   - Two holders never rely on one lock: from the return of Lock until Unlock, or until Err is not nil. Readers share; permits are
//     never more than exist.
//   - A lease without an error is on the server. A lease is not lost before ValidUntil, and never held again after a loss.
//   - A Redlock without an error is on a majority of the servers that have not been emptied since; an emptied server excuses nothing.
//   - Fencing tokens grow.
//   - A loss is told within the length of the lease.
//   - AtLeast keeps a lock taken behind its Unlock, and AtMost ends a hold, neither too early nor too late. The counter of a fenced
//     lock ends by TokenLife, and tokens grow all the same.
//   - Each call returns within its limit, with an error explained by the faults.
//   - Without faults, a free lock does not stay free during a wait, the server has no unknown owner, and
//     renewals succeed. Owners have a fair lock in the order of its queue, and a process in the line of a lock is passed by few.
//   - In the end no key, permit, connection or goroutine is left.
//
// After events excluded by the documentation (exclusions), such as a loss of the server's data, a hold need not be good.
//
// # Seeds
//
// The seed decides the actions of workers, and the faults with their times. With go test the schedule of goroutines is still up
// to the runtime, so a seed repeats the faults and seldom a failure. Package host runs the same tests as a WebAssembly program,
// where a seed decides everything; there a failing seed is run again with ever fewer faults, to print the few necessary faults.
package simulation
