package conn

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultSentinelPort = "26379"

// Sentinel says which sentinels to ask for the server, and how. It is in use if Master is not empty. Config.Addr must
// then be empty; everything else in Config is about the server the sentinels name.
//
// A Pool follows the sentinels: when they have made another server the master, its connections are replaced at once. A
// Conn or Stream that is dialled without a Pool asks them once.
type Sentinel struct {
	// Master is the name that the sentinels know the master by. "" uses no sentinels.
	Master string

	// Addrs are the addresses, host:port, of some of the sentinels, at least one. They are asked in turn, one that has
	// answered first the next time; those that they tell of are asked too. The ones given here are never forgotten, and
	// host names are resolved again each time.
	Addrs []string

	// Username and Password identify the client to the sentinels, as those of Config do to the server; nothing is taken
	// over from there.
	Username, Password string

	// TLS, if set, encrypts the connections to sentinels, whatever Config.TLS says of those to the server. Where it names
	// no server, ServerName is the host of the sentinel's address.
	TLS *TLSConfig

	// NodeMap, if set, returns the address to dial for a server or a sentinel that the sentinels announce at addr,
	// host:port: for networks in which the announced addresses lead nowhere. Addrs are not mapped. It is called by several
	// goroutines at once, must not block, and must return the same for the same address.
	NodeMap func(addr string) string

	// Timeout is how long one sentinel may take to be reached and to answer before the next is asked. 0 is 1 s; it may
	// not be negative.
	Timeout time.Duration

	// PollInterval is how often a sentinel is asked whether the master is still the same, a different one each time: what
	// they announce may be lost on its way. 0 is 10 s; below 0 relies on the announcements, and on what the server says.
	PollInterval time.Duration
}

// used reports whether sentinels are to be asked.
func (s *Sentinel) used() bool { return s.Master != "" }

func (s Sentinel) withDefaults() Sentinel {
	s.Addrs = slices.Clone(s.Addrs)
	s.Timeout = cmp.Or(s.Timeout, time.Second)
	s.PollInterval = cmp.Or(s.PollInterval, 10*time.Second)
	return s
}

// validate tells what cannot work. Its errors hold no address.
func (s *Sentinel) validate(cfg *Config) error {
	switch {
	case cfg.Addr != "":
		return errors.New("conn: Addr is set; with Sentinel.Master the sentinels say where the server is")
	case cfg.Dial == nil && !strings.HasPrefix(cfg.Network, "tcp"):
		return errors.New("conn: Network is not tcp, which is what sentinels know servers by")
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

// sentinel is the Config of a connection to the sentinel at addr.
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

// server is the Config of a connection to the server that the sentinels announce at addr.
func (cfg *Config) server(addr string) *Config {
	c := *cfg
	c.Addr = addr
	if c.TLS != nil && c.TLS.ServerName == "" {
		c.TLS = c.TLS.Clone()
		c.TLS.ServerName = c.serverName() // a certificate is for what is announced, not for where a NodeMap leads
	}
	c.Addr = c.Sentinel.mapped(addr)
	return &c
}

// mapped is the address to dial for one that was announced.
func (s *Sentinel) mapped(addr string) string {
	if s.NodeMap != nil {
		return s.NodeMap(addr)
	}
	return addr
}

// announced makes an address of what a sentinel says about one, or "" if it is none.
func announced(host, port string) string {
	const longestName = 255
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > longestName {
		return ""
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' || r == '@' }) {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10))
}
