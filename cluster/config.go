package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Config configures a Cluster. Open copies the Config, so later changes have no effect. Do not
// change anything the Config points to.
//
// For a number or a duration, 0 is the default and below 0 is off, unless the field's comment says
// otherwise.
type Config struct {
	// Addrs are the addresses, host:port, of some nodes, at least one. The Cluster uses Addrs
	// first, and again when it can reach no known node. Host names are resolved again each time.
	Addrs []string

	// Node configures the connections to each node: credentials, TLS, timeouts, numbers of
	// connections. Its Addr must be empty and its DB 0, the only database of a cluster. Network is
	// "tcp". If TLS names no server, ServerName is the host announced by the cluster.
	//
	// Node.Retry bounds the calls of the Cluster, over all nodes together. Attempts is 256 by
	// default, so that time bounds a call. Retry.Budget is 5 s by default. A failover is shorter
	// than 5 s if cluster-node-timeout is at most 2 s. With the servers' default of 15 s a failover
	// takes some 17 s, and calls to a dead master fail during the first 12 s. To let calls wait for
	// the new master, set Budget to 20 s or more, or below 0 to leave the limit to ctx.
	//
	// Node.Timeout does not bound the wait for a new master, because nothing has been sent.
	// DialTimeout is 2 s by default: a node that cannot be reached for longer may have been
	// replaced.
	Node conn.Config

	// NodeMap, if set, returns the address to dial for a node announced at addr, host:port, in
	// networks without a route to the announced addresses. Addrs are not mapped. Several goroutines
	// call NodeMap at once. NodeMap must not block, and must always return the same result for an
	// address.
	NodeMap func(addr string) string

	// MaxRedirects is the number of successive MOVED and ASK replies that a call follows. 0 is 8;
	// below 0 is none.
	MaxRedirects int

	// RefreshInterval is the time between refreshes of the topology without any sign of a change. 0
	// is 1 minute; below 0 is never.
	RefreshInterval time.Duration
}

func (cfg Config) withDefaults() Config {
	cfg.Addrs = slices.Clone(cfg.Addrs)
	cfg.MaxRedirects = cmp.Or(cfg.MaxRedirects, 8)
	cfg.RefreshInterval = cmp.Or(cfg.RefreshInterval, time.Minute)
	if cfg.NodeMap == nil {
		cfg.NodeMap = func(addr string) string { return addr }
	}
	cfg.Node.DialTimeout = cmp.Or(cfg.Node.DialTimeout, 2*time.Second)
	cfg.Node.Timeout = cmp.Or(cfg.Node.Timeout, 5*time.Second)
	r := &cfg.Node.Retry
	r.Attempts = cmp.Or(r.Attempts, 256)
	r.MinBackoff = cmp.Or(r.MinBackoff, 8*time.Millisecond)
	r.MaxBackoff = cmp.Or(r.MaxBackoff, max(512*time.Millisecond, r.MinBackoff))
	r.Budget = cmp.Or(r.Budget, 5*time.Second)
	return cfg
}

// validate reports mistakes in a Config with defaults. Errors contain no address.
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
	pool, err := conn.New(cfg.node(cfg.Addrs[0], cfg.Addrs[0]))
	if err != nil {
		return fmt.Errorf("cluster: Node: %w", err)
	}
	return pool.Close()
}

// node returns the Config of the pool of a node announced at one address and dialled at another. The
// pool tries once: the Cluster decides about repetition.
func (cfg Config) node(announced, addr string) conn.Config {
	n := cfg.Node
	n.Addr = addr
	n.Retry.Attempts = -1
	if n.TLS != nil && n.TLS.ServerName == "" && announced != addr {
		host, _, _ := net.SplitHostPort(announced)
		host, _, _ = strings.Cut(host, "%") // certificates do not contain the zone of an IPv6 address
		n.TLS = n.TLS.Clone()
		n.TLS.ServerName = host
	}
	return n
}

// inTurn returns an OnPush for several pools, which calls fn once at a time.
func inTurn(fn func(resp.Value)) func(resp.Value) {
	if fn == nil {
		return nil
	}
	calling := make(chan struct{}, 1) // holds a token while fn is called
	return func(v resp.Value) {
		calling <- struct{}{}
		defer func() { <-calling }()
		fn(v)
	}
}

// seed is node for a connection for a single question.
func (cfg Config) seed(announced, addr string) conn.Config {
	n := cfg.node(announced, addr)
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

// String returns the Config as a URL without the password.
func (cfg Config) String() string {
	scheme := "redis-cluster://"
	if cfg.Node.TLS != nil {
		scheme = "rediss-cluster://"
	}
	if cfg.Node.Username != "" {
		scheme += cfg.Node.Username + "@"
	}
	return scheme + strings.Join(cfg.Addrs, ",")
}

// GoString is String, for %#v.
func (cfg Config) GoString() string { return cfg.String() }
