package conn

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

const defaultSentinelPort = "26379"

// Sentinel holds the addresses of sentinels and the settings for asking them. It is in use if Master is not empty.
// Config.Addr must then be empty; all other fields of Config are about the server named by the sentinels.
//
// A Pool follows the sentinels: after a failover the Pool replaces its connections at once. A Conn or Stream dialed
// without a Pool asks the sentinels once.
type Sentinel struct {
	// Master is the master's name in the configuration of the sentinels. "" uses no sentinels.
	Master string

	// Addrs are the addresses, host:port, of at least one sentinel.
	//
	//   - The client asks the sentinels in turn, beginning with the last one that answered.
	//   - The client also asks the sentinels named in answers, but never forgets Addrs.
	//   - Host names are resolved at each dial.
	Addrs []string

	// Username and Password authenticate the client to the sentinels. The fields of the same name in Config are not
	// used for sentinels.
	Username, Password string

	// TLS, if set, encrypts the connections to sentinels, independently of Config.TLS. ServerName defaults to the
	// host of the sentinel's address.
	TLS *TLSConfig

	// NodeMap, if set, returns the address to dial for a server or sentinel announced at addr, host:port. Use NodeMap
	// in networks where clients cannot reach the announced addresses. Addrs are not mapped. Several goroutines may
	// call NodeMap at once. NodeMap must not block, and must return the same result for the same address.
	NodeMap func(addr string) string

	// Timeout limits the connection to one sentinel and its answer, before the client asks the next sentinel. 0 is 1
	// s; a negative value is invalid.
	Timeout time.Duration

	// PollInterval is the time between questions about the master, each to a different sentinel, in case an
	// announcement was lost. 0 is 10 s. A negative value relies on announcements and on the servers' replies.
	PollInterval time.Duration
}

// used reports whether the Config has sentinels.
func (s *Sentinel) used() bool { return s.Master != "" }

func (s Sentinel) withDefaults() Sentinel {
	s.Addrs = slices.Clone(s.Addrs)
	s.Timeout = cmp.Or(s.Timeout, time.Second)
	s.PollInterval = cmp.Or(s.PollInterval, 10*time.Second)
	return s
}

// validate returns the first error in a Sentinel with defaults. An error contains no address.
func (s *Sentinel) validate(cfg *Config) error {
	switch {
	case cfg.Addr != "":
		return errors.New("conn: Addr is set; with Sentinel.Master the sentinels name the server")
	case cfg.Dial == nil && !strings.HasPrefix(cfg.Network, "tcp"):
		return errors.New("conn: Network is not tcp, which Sentinel requires")
	case len(s.Addrs) == 0:
		return errors.New("conn: Sentinel.Addrs is empty")
	case strings.ContainsFunc(s.Master, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("conn: Sentinel.Master has a space or a control character")
	case s.Timeout < 0:
		return fmt.Errorf("conn: Sentinel.Timeout is %v, below 0", s.Timeout)
	}
	for i, addr := range s.Addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("conn: Sentinel.Addrs[%d] is not host:port; an IPv6 host needs brackets", i)
		}
		if s.TLS != nil && s.TLS.ServerName == "" && !s.TLS.InsecureSkipVerify && host == "" {
			return fmt.Errorf("conn: Sentinel.TLS.ServerName is empty and Sentinel.Addrs[%d] has no host to take its place", i)
		}
	}
	return nil
}

// sentinel returns the Config of a connection to the sentinel at addr.
func (cfg *Config) sentinel(addr string) *Config {
	s := &cfg.Sentinel
	return &Config{
		Network:     cfg.Network,
		Addr:        addr,
		Username:    s.Username,
		Password:    s.Password,
		NoIdentity:  cfg.NoIdentity,
		Protocol:    cfg.Protocol,
		TLS:         s.TLS,
		Dial:        cfg.Dial,
		DialTimeout: s.Timeout,
		Timeout:     s.Timeout,
		Limits:      cfg.Limits,
	}
}

// server returns the Config of a connection to the server announced at addr.
func (cfg *Config) server(addr string) *Config {
	c := *cfg
	c.Addr = addr
	if c.TLS != nil && c.TLS.ServerName == "" {
		c.TLS = c.TLS.Clone()
		c.TLS.ServerName = c.serverName() // a certificate names the announced host, not the result of NodeMap
	}
	c.Addr = c.Sentinel.mapped(addr)
	return &c
}

// mapped returns the address to dial for an announced address.
func (s *Sentinel) mapped(addr string) string {
	if s.NodeMap != nil {
		return s.NodeMap(addr)
	}
	return addr
}
