package lock

import (
	"context"
	"iter"
	"reflect"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/pubsub"
)

// Server is where the locks are: a *conn.Pool, a *cluster.Cluster, something that embeds one of the two, or something that wraps
// one.
//
// A Client has to know more of its Server than how to send: whether it is one server or many, and whether replicas may take their
// place. That is what [Sole] and [Spread] declare. [New] looks for them in the Server and, if that has neither but a method
// Unwrap() Server, in what this returns, and so on. A Server without is refused, unless Config.Standalone says that it is a
// single one.
//
// Every command for locks goes through Send and SendBatch of the outermost Server, so that one that traces, counts or fails on
// purpose sees all of them, and the connection for wake-ups through its Stream. What only the one that declares Spread can do
// goes through that: StreamTo for the wake-ups of a cluster, and the Doers by which List goes from master to master. A wrapper
// that wants to see these as well declares Spread itself.
//
// A Server sends a batch that ends in WAIT as a whole, and over a connection that it shares with nobody: whatever comes behind a WAIT
// stands still.
type Server interface {
	conn.Doer
	pubsub.Dialer
}

// Failover is what a Server declares, within Sole or Spread, about replicas.
type Failover interface {
	// Replicated reports whether replicas may take the place of a server.
	Replicated() bool

	// Succession returns who serves key, and how many replicas may take its place, in the words of others than that server
	// itself, who were asked no sooner than since. If since is zero, what is known will do.
	Succession(ctx context.Context, key string, since time.Time) (conn.Succession, error)
}

// Sole is what a Server declares that is one server at a time. A *conn.Pool does.
type Sole interface {
	Failover

	// Target names the data: two Servers with the same Target have the same. "" is one that is not known.
	Target() string
}

// Spread is what a Server declares that is several servers, each with a part of the keys. A *cluster.Cluster does.
type Spread interface {
	Failover
	pubsub.Router // Route also tells which server has a key, and StreamTo leads there

	// Slot returns the hash slot of a key. The keys of one script are of one slot.
	Slot(key string) int

	// SuccessionOf is as Succession about the server that calls itself by an id: while a slot migrates, keys of it are on a
	// server that does not serve it yet.
	SuccessionOf(ctx context.Context, id string, since time.Time) (conn.Succession, error)

	// Doers yields the servers that have keys, each as the only one.
	Doers(ctx context.Context) iter.Seq2[conn.Doer, error]
}

// nature is what a Client knows of its Server.
type nature struct {
	inner    Server   // what all wrappers wrap
	spread   Spread   // nil: the server is one
	sole     Sole     // nil: it is several, or Standalone
	failover Failover // nil: no replica ever takes its place
}

// classify finds out of what nature a Server is.
func classify(s Server, standalone bool) (n nature, err error) {
	var stand Failover
	for at := s; at != nil; {
		n.inner = at
		if stand == nil {
			if spread, ok := at.(Spread); ok {
				n.spread, stand = spread, spread
			} else if sole, ok := at.(Sole); ok {
				n.sole, stand = sole, sole
			}
		}
		wrapper, ok := at.(interface{ Unwrap() Server })
		if !ok {
			break
		}
		at = wrapper.Unwrap()
	}
	switch {
	case stand == nil && !standalone:
		return n, invalidf("a Server of which it is not known whether it is one server: it declares neither Sole nor Spread, and " +
			"no Unwrap() Server leads to one that does; if it is a single server, set Config.Standalone")
	case stand != nil && standalone && (n.spread != nil || stand.Replicated()):
		return n, invalidf("Standalone with a Server that is a cluster, or fails over")
	case stand != nil && stand.Replicated():
		n.failover = stand
	}
	return n, nil
}

// dialer is what the connections for wake-ups are opened by.
func (n *nature) dialer(outer Server) pubsub.Dialer {
	if _, ok := outer.(pubsub.Router); ok || n.spread == nil {
		return outer
	}
	return routed{outer, n.spread}
}

// routed is a wrapped Server that is several servers.
type routed struct {
	pubsub.Dialer
	spread Spread
}

func (r routed) Route(channel string) string { return r.spread.Route(channel) }

func (r routed) StreamTo(ctx context.Context, server string) (*conn.Stream, error) {
	return r.spread.StreamTo(ctx, server)
}

func (r routed) Refused(server string, err error) { r.spread.Refused(server, err) }

// same reports whether two clients are on one Server, however that is wrapped.
func (n *nature) same(other *nature) bool {
	if t := reflect.TypeOf(n.inner); t == nil || !t.Comparable() || t != reflect.TypeOf(other.inner) {
		return false
	}
	return n.inner == other.inner
}

// place is what the server is known by in every process; "" if that is not known.
func (c *Client) place() string {
	if c.nature.sole == nil {
		return ""
	}
	return c.nature.sole.Target()
}
