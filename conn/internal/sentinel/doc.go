// Package sentinel finds the master of a group of servers by asking Redis Sentinel, and follows it through failovers.
//
//	r := sentinel.New(sentinel.Config{Master: "mymaster", Addrs: addrs, Dial: dial, Ask: ask, ...})
//	s, err := r.Dial(ctx) // a connection to the master
//	wg.Go(func() { r.Follow(ctx) })
//	wg.Go(func() { r.Watch(ctx) })
//
// The package opens no connection itself. Package conn gives it functions for that, and is told about each change of the
// master by Config.OnSwitch.
//
// # Who may be the master
//
// A server is the known master if a sentinel named it, and if the server itself reported the role of a master. Then:
//
//   - Dial connects to the known master, and asks the sentinels only if that fails or after Suspect.
//   - Follow listens to the announcements of one sentinel. Watch asks one sentinel now and then, in case an announcement
//     was lost. Both only run when their caller starts them, and end with their ctx.
//   - An answer from before the last failover, by the epoch of the sentinels' configuration, is the last resort.
//
// # Where to find what
//
//   - resolver.go: the known master, its changes, and one round of questions after another until a dial succeeds.
//   - ask.go: one conversation with one sentinel, and how its replies are read.
//   - follow.go: the two loops, Follow and Watch.
//   - inquiry.go: questions about the replicas, shared by callers.
//   - succession.go: which replicas could take the master's place, by the answers.
//   - wait.go: pauses, and the limit on connections to sentinels.
package sentinel
