// Package cluster is a client of a Redis or Valkey Cluster. A cluster divides keys into 16384 hash
// slots, and a master serves each slot.
//
// A [Cluster] sends each command to the node that serves the slot of the command's first key. The
// Cluster follows slots that move and replicas that take over. A Cluster is a conn.Doer, and may be
// used wherever a conn.Pool may.
//
//	c, err := cluster.Open(ctx, cluster.Config{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	v, err := c.Do(ctx, "GET", "user:{42}:name")
//
// All methods may be called by many goroutines at once. The Cluster does not read from
// replicas; [Cluster.Replicas] does.
//
// # Routing
//
// A table gives the position of the first key for the commands of Redis and Valkey. In an unknown
// command the first argument is the key. resp.Command.On overrides both. A command without a key
// goes to any master. No command is split: the server answers a command on several slots with the
// error CROSSSLOT. Keys that belong together share a hash tag, as {42} above. MGet, MSet, Del,
// Unlink and Exists send a command for each slot.
//
// # Repetition
//
// The Cluster repeats commands that certainly did not run, within one budget of attempts and time:
//
//   - commands without a byte sent;
//   - commands redirected to another node (MOVED, ASK);
//   - commands refused by a server that is not ready (TRYAGAIN, CLUSTERDOWN, LOADING, READONLY and
//     others).
//
// A command sent without an answer fails with conn.ErrUncertain and is never repeated. An
// acknowledged write is lost when a replica takes over that has not received the write.
package cluster
