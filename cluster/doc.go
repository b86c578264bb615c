// Package cluster is a client of a Redis or Valkey Cluster: keys are divided into 16384 hash slots, and each slot is served
// by one of several masters.
//
// A [Cluster] sends each command to the node that serves the slot of its first key, and follows the cluster when slots move
// and replicas take over. It is a conn.Doer, and may be used wherever a conn.Pool may.
//
//	c, err := cluster.Open(ctx, cluster.Config{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	v, err := c.Do(ctx, "GET", "user:{42}:name")
//
// Where the first key of a command is, a table knows for the commands of Redis and Valkey; in others it is the first
// argument, or what resp.Command.On says. A command without a key goes to any master. No command is split: one with keys in
// several slots gets the error CROSSSLOT of the server. Keys that belong together share a hash tag, as {42} above.
//
// What certainly did not run is repeated, within one budget of attempts and time: commands of which no byte was sent, and
// those the server says it did not execute, be it that another node serves the slot (MOVED, ASK) or that it cannot now
// (TRYAGAIN, CLUSTERDOWN, LOADING, READONLY and others). A command that was sent and not answered is conn.ErrUncertain and
// never repeated. An acknowledged write may be lost when a replica takes over that has not received it.
//
// All methods may be called by many goroutines at once. Replicas are not read from.
package cluster
