// Package lockwire opens Redisson's distributed locks for Go, on a RESP client of its own that needs nothing but the
// standard library. A Go process and a Java process that use Redisson contend for the same lock, wake each other, and
// respect each other's leases.
//
//	locks, err := lockwire.Open(ctx, os.Getenv("REDIS_URL"), lockwire.Config{})
//	...
//	defer locks.Close()
//	err = locks.Reentrant("orders").Do(ctx, func(ctx context.Context) error {
//		return process(ctx) // ctx ends if the lock is lost
//	})
//
// [Open] takes the URL of a server, of sentinels or of a cluster. Package lock describes the locks.
//
// The packages, from the bottom up:
//
//   - [github.com/lockwire/lockwire/resp] turns bytes into values and back: RESP2 and RESP3.
//   - [github.com/lockwire/lockwire/conn] has connections and a pool of them.
//   - [github.com/lockwire/lockwire/script] runs Lua scripts by digest.
//   - [github.com/lockwire/lockwire/pubsub] has subscriptions that outlive their connection.
//   - [github.com/lockwire/lockwire/cluster] is a client of a cluster.
//   - [github.com/lockwire/lockwire/lock] has the locks.
//   - [github.com/lockwire/lockwire/lock/leader] elects a leader.
//   - [github.com/lockwire/lockwire/lock/locktest] is a server in memory, for tests of programs with locks.
//   - [github.com/lockwire/lockwire/lock/fence] checks fencing tokens where they count.
//
// The example is a whole program: open, lock, work for as long as the lock is held, unlock.
package lockwire
