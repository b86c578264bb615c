package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/lockwire/lockwire/conn"
)

// Config says where a cluster is and how to treat its nodes. It is copied by Open, so changing it afterwards changes
// nothing; what it points to must not be changed any more.
//
// For a number or a duration, 0 is the default and below 0 is off, unless its comment says otherwise.
type Config struct {
	// Addrs are the addresses, host:port, of some of the nodes, at least one. They are where to look for the cluster, at
	// first and whenever no other known node can be reached; host names are resolved again each time.
	Addrs []string

	// Node is how each node is treated: credentials, TLS, timeouts, numbers of connections. Its Addr must be empty and its
	// DB 0, as that is the only database of a cluster; Network is "tcp". If TLS names no server, ServerName is the host as
	// the cluster announces it.
	//
	// Its Retry bounds the calls of the Cluster, over all nodes together. Attempts is 256 by default, so that the time is
	// what bounds a call. Retry.Budget is 5 s by default, which outlives a failover where cluster-node-timeout is up to 2 s.
	// With the 15 s that servers have by default a failover takes some 17 s, and a call that meets a dead master fails in the
	// first 12 of them: set Budget to 20 s or more, or below 0 to leave it to the ctx, if calls are to wait for the new
	// master. Node.Timeout does not bound that wait, as nothing has been sent. DialTimeout is 2 s by default: a node that cannot be
	// reached for longer than that may have been replaced.
	Node conn.Config

	// NodeMap, if set, returns the address to dial for a node that the cluster announces at addr, host:port: for networks
	// in which the cluster's own addresses lead nowhere. Addrs are not mapped. It is called by several goroutines at once,
	// must not block, and must return the same for the same address.
	NodeMap func(addr string) string

	// MaxRedirects is how many MOVED and ASK answers in a row one call follows. 0 is 8; below 0 is none.
	MaxRedirects int

	// RefreshInterval is how often the topology is asked for when nothing hints that it has changed. 0 is 1 minute; below 0
	// is never.
	RefreshInterval time.Duration
}

func (cfg Config) withDefaults() Config {
	cfg.Addrs = slices.Clone(cfg.Addrs)
	cfg.MaxRedirects = cmp.Or(cfg.MaxRedirects, 8)
	cfg.RefreshInterval = cmp.Or(cfg.RefreshInterval, time.Minute)
	cfg.Node.DialTimeout = cmp.Or(cfg.Node.DialTimeout, 2*time.Second)
	cfg.Node.Timeout = cmp.Or(cfg.Node.Timeout, 5*time.Second)
	r := &cfg.Node.Retry
	r.Attempts = cmp.Or(r.Attempts, 256)
	r.MinBackoff = cmp.Or(r.MinBackoff, 8*time.Millisecond)
	r.MaxBackoff = cmp.Or(r.MaxBackoff, max(512*time.Millisecond, r.MinBackoff))
	r.Budget = cmp.Or(r.Budget, 5*time.Second)
	return cfg
}

// validate tells what in a Config with defaults cannot work. Its errors hold no address.
func (cfg Config) validate() error {
	if len(cfg.Addrs) == 0 {
		return errors.New("cluster: Addrs is empty")
	}
	for i, addr := range cfg.Addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("cluster: Addrs[%d] is not host:port; an IPv6 host needs brackets", i)
		}
	}
	switch {
	case cfg.Node.Addr != "":
		return errors.New("cluster: Node.Addr is set; the nodes to begin with are in Addrs")
	case cfg.Node.DB != 0:
		return fmt.Errorf("cluster: Node.DB is %d; a cluster has only database 0", cfg.Node.DB)
	case cfg.Node.Network != "" && cfg.Node.Network != "tcp":
		return errors.New("cluster: Node.Network is not tcp")
	}
	pool, err := conn.New(cfg.node(cfg.Addrs[0]))
	if err != nil {
		return fmt.Errorf("cluster: Node: %w", err)
	}
	return pool.Close()
}

// node is the Config of the pool of one node. A pool tries once: what follows from that, the Cluster decides.
func (cfg Config) node(addr string) conn.Config {
	n := cfg.Node
	n.Addr = addr
	n.Retry.Attempts = -1
	return n
}

// seed is the Config of a connection that is made to ask one question.
func (cfg Config) seed(addr string) conn.Config {
	n := cfg.node(addr)
	n.OnPush = nil
	return n
}

func (cfg Config) policy() policy {
	return policy{
		attempts:  max(cfg.Node.Retry.Attempts, 1),
		redirects: max(cfg.MaxRedirects, 0),
		budget:    cfg.Node.Retry.Budget,
	}
}

// dialAddr is the address to dial for a node announced at addr.
func (cfg Config) dialAddr(addr string) string {
	if cfg.NodeMap != nil {
		return cfg.NodeMap(addr)
	}
	return addr
}

// String returns the Config as a URL without its password, so that printing one betrays nothing.
func (cfg Config) String() string {
	scheme := "redis-cluster://"
	if cfg.Node.TLS != nil {
		scheme = "rediss-cluster://"
	}
	if cfg.Node.Username != "" {
		scheme += cfg.Node.Username + "@"
	}
	for i, addr := range cfg.Addrs {
		if i > 0 {
			scheme += ","
		}
		scheme += addr
	}
	return scheme
}

// GoString is String, for %#v.
func (cfg Config) GoString() string { return cfg.String() }
