package lock

import (
	"context"
	"iter"
	"reflect"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// Server is the connection to the Redis with the locks: a *conn.Pool, a *cluster.Cluster, or a type that embeds or wraps
// either.
//
// A Client must know whether its Server is a single server or several, and whether replicas may replace a server. [Sole] and
// [Spread] declare these properties. [New] looks for Sole and Spread in the Server; if the Server has neither but a method
// Unwrap() Server, New looks in the result, and so on. A Server without Sole or Spread is refused unless
// Config.Standalone declares a single server.
//
// The outermost Server's methods carry the traffic: Send and SendBatch every command for locks, and Stream the connection for
// wake-ups. A wrapper can therefore trace or count all commands. In a cluster, StreamTo (wake-ups) and Doers (the masters,
// for List) are called on the Server that declares Spread; a wrapper may declare Spread itself to see these calls too.
//
// A Server must send a batch ending in WAIT as a whole, over an exclusive connection, because WAIT blocks all later commands
// on its connection.
type Server interface {
	conn.Doer
	pubsub.Dialer
}

// Failover is the part of Sole and Spread about replicas.
type Failover interface {
	// Replicated reports whether replicas may take the place of a server.
	Replicated() bool

	// Succession returns the server of key and the number of replicas that may replace the server. The information must
	// come from a party other than the server itself, obtained no earlier than since. If since is zero, known
	// information of any age is enough. A Sole counts the changes of its server in Changes: otherwise a change to a
	// former master and back, within one request, is not noticed.
	Succession(ctx context.Context, key string, since time.Time) (conn.Succession, error)
}

// Sole is implemented by a Server that is a single server at a time, such as a *conn.Pool.
type Sole interface {
	Failover

	// Target names the data: two Servers with the same Target have the same data. "" is unknown.
	Target() string
}

// Spread is implemented by a Server of several servers, each with a part of the keys, such as a *cluster.Cluster.
type Spread interface {
	Failover
	pubsub.Router // Route also names the server of a key, and StreamTo connects to the server

	// Slot returns the hash slot of a key. All keys of a script are in the same slot.
	Slot(key string) int

	// SuccessionOf is Succession for the server with the given id. While a slot migrates, some of its keys are on a server
	// not yet serving the slot.
	SuccessionOf(ctx context.Context, id string, since time.Time) (conn.Succession, error)

	// Doers yields the servers with keys, each as a Doer bound to a single server.
	Doers(ctx context.Context) iter.Seq2[conn.Doer, error]
}

// nature has the declared properties of a Client's Server.
type nature struct {
	inner    Server          // the innermost Server, without wrappers
	spread   Spread          // nil for a single server
	data     string          // names the server's data, the same in every process; "" if unknown
	failover remote.Failover // nil if no replica ever replaces a server
}

// classify returns the nature of a Server.
func classify(s Server, standalone bool) (n nature, err error) {
	var stand Failover
	for at := range wrapped(s) {
		n.inner = at
		if stand != nil {
			continue
		}
		if spread, ok := at.(Spread); ok {
			n.spread, stand = spread, spread
		} else if sole, ok := at.(Sole); ok {
			n.data, stand = sole.Target(), sole
		}
	}
	switch {
	case stand == nil && !standalone:
		return n, invalidf("a Server of unknown nature: it declares neither Sole nor Spread, and " +
			"no Unwrap() Server leads to one that does; if it is a single server, set Config.Standalone")
	case stand != nil && standalone && (n.spread != nil || stand.Replicated()):
		return n, invalidf("Standalone with a Server that is a cluster, or fails over")
	case stand != nil && stand.Replicated():
		n.failover = stand
	}
	return n, nil
}

// dialer returns the Dialer for the wake-up connections.
func (n *nature) dialer(outer Server) pubsub.Dialer {
	if _, ok := outer.(pubsub.Router); ok || n.spread == nil {
		return outer
	}
	return routed{n.spread, outer}
}

// routed is a wrapped Server of several servers.
type routed struct {
	pubsub.Router
	outer pubsub.Dialer
}

func (r routed) Stream(ctx context.Context) (*conn.Stream, error) { return r.outer.Stream(ctx) }

// same reports whether two clients have the same innermost Server.
func (n *nature) same(other *nature) bool {
	a, b := reflect.ValueOf(n.inner), reflect.ValueOf(other.inner) // a value with others inside, perhaps, that cannot be compared
	return a.IsValid() && b.IsValid() && a.Comparable() && b.Comparable() && n.inner == other.inner
}

// remote returns the Server for requests of a client.
func (n *nature) remote(outer Server, log *logs.Log) *remote.Server {
	s := &remote.Server{Doer: outer, Failover: n.failover, Log: log}
	if n.spread != nil { // otherwise an interface with a nil inside
		s.Spread = n.spread
	}
	return s
}

// publish returns the command for waking waiters; "" if the server has to be asked.
func (n *nature) publish(p Publishing) string {
	switch {
	case p == PublishSharded:
		return remote.ShardPublish
	case p == PublishPlain || n.spread == nil:
		return remote.PlainPublish
	}
	return ""
}

// Publishing selects the kind of channel for waking waiters.
type Publishing int

const (
	// PublishAuto is Redisson's rule: shard channels (SPUBLISH) in a cluster with shard channels, plain channels (PUBLISH)
	// everywhere else. A Client asks once, and keeps to the answer: use PublishPlain while a cluster is upgraded from Redis 6.
	PublishAuto Publishing = iota
	// PublishPlain is for a cluster shared with Redisson clients on plain channels: clients before 3.22, or with the
	// shardedSubscriptionMode OFF.
	PublishPlain
	// PublishSharded is for Redisson clients with the shardedSubscriptionMode ON.
	PublishSharded
)

// Acks is the number of replicas that must acknowledge a lock before Lock returns. A positive number is exact, however many
// replicas the server has.
type Acks int

const (
	// AcksAuto requires all replicas that could replace the server, in a cluster and under Sentinel, and none for a server
	// configured by its address. A replica that is down does not count.
	AcksAuto Acks = 0
	// AcksOff requires no acknowledgement.
	AcksOff Acks = -1
	// AcksMajority requires enough replicas for a majority, together with the server, of all nodes that have not failed.
	AcksMajority Acks = -2
)

// acks returns what an Acks demands of the replicas of a server.
func (n *nature) acks(a Acks, timeout time.Duration, log *logs.Log) remote.Acks {
	of := func(replicas int) int { return replicas }
	if a == AcksMajority {
		of = func(replicas int) int { return (replicas + 1) / 2 }
	}
	return remote.Acks{Off: a == AcksOff || a == AcksAuto && n.failover == nil, Exact: max(0, int(a)), Of: of, Timeout: timeout,
		Shortage: func(s remote.Shortage) error {
			return &NotReplicatedError{Name: s.Name, Server: s.Server, Needed: s.Needed, Acked: s.Acked, Within: s.Within, Err: s.Err, log: log}
		}}
}

// find returns the first of a Server and of the Servers that it wraps that is a T.
func find[T any](s Server) (found T, ok bool) {
	for at := range wrapped(s) {
		if found, ok = at.(T); ok {
			break
		}
	}
	return found, ok
}

// wrapped yields a Server, the Server that it wraps, and so on.
func wrapped(s Server) iter.Seq[Server] {
	return func(yield func(Server) bool) {
		for s != nil && yield(s) {
			wrapper, ok := s.(interface{ Unwrap() Server })
			if !ok {
				return
			}
			s = wrapper.Unwrap()
		}
	}
}
