// Package simulation runs lock clients, a network and a server from one seed, in virtual time, and checks every lease.
//
// A third of the seeds have one server, or in a fifth of them five servers and lock.Redlock. A run has 3 to 6 processes. Each has a
// connection pool, or a cluster.Cluster, and a lock client of its own, over a network in memory whose delays, losses and cuts the seed decides. The server is package fakeredis; the Lua of the scripts runs in an interpreter. Workers take and
// release locks of all kinds under few names. In a third of the runs some processes are Redisson's (package redisson: its scripts, its
// watchdog, its way to wait), so that compatibility is in the same game. First faults happen for 10 to 45 seconds: on the network, to processes and to the
// server. Then all is sound for 40 seconds, the workers end, and all clients are closed.
//
// A third of the seeds have a master, two replicas and three sentinels, each of which sees the others through a network of its own:
// any of them hangs, dies, comes back with its data or without, is cut off from some of the others in one direction or both, or
// hears everything late. Clients are cut off from some of them. Clients ask for the default acknowledgements. A lease is good if
// the server has it that the newest configuration of the sentinels names. After such a storm all is sound for 75 seconds.
//
// A third have a cluster: three masters with a replica each, that ping each other through a network of their own, elect, and believe
// the claim with the larger epoch, as Redis' do. Nodes fail as above, replicas take over when they are told to, and slots of locks move
// from one shard to another, some of them with keys on both sides for longer than a lease. A lease is good if the node has it that has
// the slot by the largest epoch, or the one that the slot is on its way to. All is sound for 60 seconds afterwards.
//
// # Checks
//
//   - Two holders never rely on one lock: from the return of Lock until Unlock, or until Err is not nil. Readers share; permits are
//     never more than there are.
//   - A lease without an error is on the server. A lease is not lost before ValidUntil, and never held again after a loss.
//   - A Redlock without an error is on a majority of the servers that have not been emptied since; an emptied server excuses nothing.
//   - Fencing tokens grow.
//   - A loss is told within the length of the lease.
//   - Each call returns within its limit, with an error that the faults explain.
//   - Without faults, a lock that is free does not stay so while somebody waits, the server has no owner that nobody is, and
//     renewals succeed.
//   - In the end no key, permit, connection or goroutine is left.
//
// After events that the documentation excludes (exclusions), such as a server that loses its data, a hold need not be good.
//
// # Seeds
//
// The seed decides what workers do, and which faults happen when. With go test the schedule of goroutines is still up to the
// runtime, so a seed repeats the faults and seldom a failure. Package host runs the same tests as a WebAssembly program, where a
// seed decides everything; there a seed that fails is run again with ever fewer faults, to print the few that it takes.
package simulation
