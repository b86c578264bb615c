package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const defaultPort = "6379"

// Config holds the address of a server and the settings of its connections. The zero Config is ready for use: a
// server without a password on 127.0.0.1:6379. Functions copy the Config they are given; the values behind TLS,
// Extra, Trace and Logger are shared and must not change afterwards.
//
// For a number or a duration, 0 is the default and a negative value turns the feature off, unless the field's comment
// says otherwise.
type Config struct {
	// Network is "tcp" or "unix", or any network known to Config.Dial. "" is "tcp".
	Network string

	// Addr is host:port, with an IPv6 host in brackets, or the path of a unix socket. A host name is resolved at
	// every dial and never cached. "" is 127.0.0.1:6379.
	Addr string

	// Sentinel replaces Addr if Sentinel.Master is set: the sentinels name the server's address.
	Sentinel Sentinel

	// Username and Password authenticate the client. A Password without a Username is the password of the user
	// "default". If both are empty, the client does not authenticate. The password appears in no error, log or trace.
	// The user appears only where a server names it in an error reply, such as NOPERM.
	Username, Password string

	// Credentials, if set, replaces Username and Password. Every dial calls the function, within the time limit of
	// the dial. Several goroutines may call the function at once. The function must return when its ctx ends.
	Credentials func(ctx context.Context) (username, password string, err error)

	// ClientName is the connection's name in CLIENT LIST: printable ASCII without spaces. "" sets no name.
	ClientName string

	// NoIdentity omits CLIENT SETINFO and ClientName from the handshake. Some proxies close the connection instead of
	// answering these commands; a dial then tries once more without them. NoIdentity saves the first attempt.
	NoIdentity bool

	name func() string // of a Pool, set by New: replaces ClientName, to which names may be added

	// DB is the database number.
	DB int

	// Protocol is the RESP version: 2 or 3 allows only this version. 0 is RESP3, with RESP2 as the fallback for a
	// server that refuses RESP3 or closes the connection during HELLO.
	Protocol int

	// TLS, if set, encrypts the connection. Every dial clones the value.
	//
	//   - ServerName defaults to the host in Addr. A unix socket needs an explicit ServerName.
	//   - Client certificates belong here; each dial calls GetClientCertificate.
	//
	// If the server does not answer the TLS handshake for half a second, the dial sends a PING in plain text over a
	// second connection. A reply ends the dial with an error about the missing TLS.
	TLS *TLSConfig

	// Dial, if set, replaces net.Dialer. The function must return when its ctx ends. The package closes the returned
	// connection, whose deadlines must work.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Extra commands run in order at the end of each handshake; an error reply fails the dial. The commands must be
	// safe to run twice: a server without RESP3 may receive them a second time.
	Extra []resp.Command

	// DialTimeout limits connecting, TLS and handshake together. The ctx of a call may set an earlier end. 0 is 5 s,
	// or 2 s with Sentinel, because a server unreachable for longer may have been replaced. A negative value leaves
	// the limit to the ctx.
	DialTimeout time.Duration

	// Timeout is the longest time without progress while commands wait for replies. After this time the connection is
	// closed and all commands on the connection fail. The following count as progress and restart the time:
	//
	//   - each reply, also within a batch;
	//   - each 16 KiB of a large reply;
	//   - each 256 KiB written of a large command, once all commands before it are answered.
	//
	// A ctx with a later deadline extends the time for all commands on the connection:
	//
	//   - exclusive connection (With, Dial): up to the deadline;
	//   - shared connection: by at most PingInterval, since a server busy with a slow command looks like a dead
	//     server;
	//   - blocking command: by the timeout in the command, from when the commands before it are answered, and without
	//     limit if the timeout is 0. The end of the ctx closes the connection.
	//
	// Run a slow command on an exclusive connection, or raise Timeout. Timeout also bounds each write of a Stream. 0
	// is 5 s; a negative value sets no limit.
	Timeout time.Duration

	// PingInterval is how long a connection may be silent before the client sends a PING, which the server must
	// answer within Timeout. A shared connection to an unresponsive server is closed after PingInterval plus Timeout
	// at the latest, even if callers have later deadlines. 0 is 5 s. A negative value sends no PING, and then
	// deadlines may extend Timeout without bound.
	PingInterval time.Duration

	// MaxAge is the age, within ±10 %, at which a connection is replaced. Set MaxAge to pick up rotated credentials
	// and certificates. 0 or a negative value sets no limit.
	MaxAge time.Duration

	// IdleTimeout is how long an exclusive connection may stay unused before the Pool closes the connection. 0 is 5
	// minutes; a negative value never closes an idle connection.
	IdleTimeout time.Duration

	// Conns is the number of connections shared by all callers. 0 is 1, enough to keep one core busy. With more, fewer
	// small replies wait behind a large one. A negative value is invalid.
	Conns int

	// MaxConns is the maximum number of exclusive connections open at once, each lent to one caller at a time. 0 is
	// 16. A negative value is invalid.
	MaxConns int

	// Limits bound the size of replies that the client reads and keeps.
	Limits resp.Limits

	// Retry limits the repetition of commands that did not run.
	Retry Retry

	// OnPush, if set, receives the unsolicited pushes of the shared connections, or of a Conn from Dial. The calls
	// are sequential, in the order of each connection. No reply waits for OnPush; if OnPush blocks and more than 1024
	// pushes or 16 MiB are queued, the oldest are dropped: Stats.PushesLost.
	OnPush func(resp.Value)

	// OnSilent, if set, is called with the address of a server that owes a reply, or an answer of the handshake, and
	// has sent nothing for a second. The call is repeated about twice a second while the silence lasts. During a
	// blocking command the calls come at the rate of PINGs on an idle connection. OnSilent must neither block nor
	// close the Pool or Conn.
	OnSilent func(addr string)

	// Trace, if set, receives events about dials and commands.
	Trace *Trace

	// Logger, if set, receives changes of state: a lost connection, a server reachable again. Nil logs nothing.
	Logger Logger
}

// A Logger receives warnings: a message, and pairs of a name and a value. *slog.Logger implements Logger; a program
// without logging does not link log/slog. Many goroutines may call Warn at once. Each caller waits for Warn to return; so
// Warn must not send a command by the Pool, because the command may wait for the dial that is reported.
type Logger interface {
	Warn(msg string, args ...any)
}

// Retry limits how often and how long one call repeats an operation that certainly did not run: a dial, a command
// without a written byte, or a command that the server reports as not executed. One budget covers all causes. The
// pause between attempts starts at MinBackoff and doubles up to MaxBackoff, with jitter. All callers share the pause
// between failed dials, which quadruples each time.
type Retry struct {
	// Attempts is the number of attempts of a call, including the first. 0 makes attempts until Budget is used up; a
	// negative value allows one attempt. With 0 and without Sentinel, Open makes at most 4 attempts, to report a wrong
	// address soon.
	Attempts int

	// MinBackoff and MaxBackoff bound the pause. 0 is 8 ms and 512 ms. Negative values are invalid.
	MinBackoff, MaxBackoff time.Duration

	// Budget limits new attempts to this time after the first failed attempt. 0 is 5 s; a negative value leaves the
	// limit to the ctx.
	Budget time.Duration
}

// withDefaults replaces zero values by defaults. Negative values stay, and readers treat every value not above zero
// as off. A second call changes nothing.
func (cfg Config) withDefaults() Config {
	cfg.Network = cmp.Or(cfg.Network, "tcp")
	if cfg.Sentinel.used() {
		cfg.Sentinel = cfg.Sentinel.withDefaults()
		cfg.DialTimeout = cmp.Or(cfg.DialTimeout, 2*time.Second)
	} else if cfg.Addr == "" && cfg.Network == "tcp" {
		cfg.Addr = "127.0.0.1:" + defaultPort
	}
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, 5*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.PingInterval = cmp.Or(cfg.PingInterval, 5*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 5*time.Minute)
	cfg.Conns = cmp.Or(cfg.Conns, 1)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 16)
	cfg.Retry.MinBackoff = cmp.Or(cfg.Retry.MinBackoff, 8*time.Millisecond)
	cfg.Retry.MaxBackoff = cmp.Or(cfg.Retry.MaxBackoff, max(512*time.Millisecond, cfg.Retry.MinBackoff))
	cfg.Retry.Budget = cmp.Or(cfg.Retry.Budget, 5*time.Second)
	if cfg.Retry.Attempts < 0 {
		cfg.Retry.Attempts = 1
	}
	return cfg
}

// validate returns the first error in a Config with defaults. An error contains no value of the Config except numbers.
func (cfg Config) validate() error {
	if err := cfg.validateAddr(); err != nil {
		return err
	}
	switch {
	case cfg.DB < 0:
		return fmt.Errorf("conn: DB is %d, below 0", cfg.DB)
	case cfg.Protocol != 0 && cfg.Protocol != 2 && cfg.Protocol != 3:
		return fmt.Errorf("conn: Protocol is %d, not 0, 2 or 3", cfg.Protocol)
	case !validName(cfg.ClientName):
		return errors.New("conn: ClientName has a character that is not printable ASCII, or a space")
	case cfg.Conns < 0:
		return fmt.Errorf("conn: Conns is %d, below 0", cfg.Conns)
	case cfg.MaxConns < 0:
		return fmt.Errorf("conn: MaxConns is %d, below 0", cfg.MaxConns)
	case cfg.Retry.MinBackoff < 0:
		return fmt.Errorf("conn: Retry.MinBackoff is %v, below 0", cfg.Retry.MinBackoff)
	case cfg.Retry.MaxBackoff < cfg.Retry.MinBackoff:
		return fmt.Errorf("conn: Retry.MaxBackoff %v is below Retry.MinBackoff %v",
			cfg.Retry.MaxBackoff, cfg.Retry.MinBackoff)
	}
	for i, cmd := range cfg.Extra {
		if err := cmd.Err(); err != nil {
			return fmt.Errorf("conn: Extra[%d]: %w", i, err)
		}
		if !allowedInExtra(cmd) {
			return fmt.Errorf("conn: Extra[%d]: %s is not allowed in a handshake", i, netfail.Op(cmd.Name()))
		}
	}
	return nil
}

// allowedInExtra reports whether cmd may be in Extra: the server answers with one reply, and the state set by the
// handshake remains.
func allowedInExtra(cmd resp.Command) bool {
	switch ruleOfCommand(&cmd) {
	case unanswered, resets, quits, begins, ends, watches, asks:
		return false
	}
	return !strings.EqualFold(cmd.Name(), "HELLO")
}

func (cfg Config) validateAddr() error {
	if err := cmp.Or(noTLS(cfg.TLS), noTLS(cfg.Sentinel.TLS)); err != nil {
		return err
	}
	if cfg.Sentinel.used() {
		return cfg.Sentinel.validate(&cfg)
	}
	if cfg.Dial == nil {
		switch cfg.Network {
		case "tcp", "tcp4", "tcp6":
			if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
				return errors.New("conn: Addr is not host:port; an IPv6 host needs brackets")
			}
		case "unix":
			if cfg.Addr == "" {
				return errors.New("conn: Addr is empty; a unix socket needs its path")
			}
		default:
			return errors.New("conn: Network is neither tcp nor unix")
		}
	}
	if t := cfg.TLS; t != nil && t.ServerName == "" && !t.InsecureSkipVerify && cfg.serverName() == "" {
		return errors.New("conn: TLS.ServerName is empty and Addr has no host to take its place")
	}
	return nil
}

// serverName returns the default TLS ServerName: the host in Addr, as configured or announced.
func (cfg Config) serverName() string {
	if cfg.Network == "unix" {
		return ""
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, "%") // certificates do not contain the zone of an IPv6 address
	return host
}

// String returns the Config as a URL without the password.
func (cfg Config) String() string {
	cfg = cfg.withDefaults()
	scheme, rest := "redis", cfg.Addr
	switch {
	case cfg.Network == "unix":
		scheme = "unix"
	case cfg.TLS != nil:
		scheme = "rediss"
	}
	if s := &cfg.Sentinel; s.used() {
		scheme, rest = scheme+"-sentinel", strings.Join(s.Addrs, ",")+"/"+s.Master
	}
	if cfg.Username != "" {
		rest = cfg.Username + "@" + rest
	}
	if cfg.DB != 0 {
		rest += "?db=" + strconv.Itoa(cfg.DB)
	}
	return scheme + "://" + rest
}

// GoString returns String, so that %#v prints no password.
func (cfg Config) GoString() string { return cfg.String() }

func validName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

// linkConfig returns the settings of a link, shared by independent callers or lent to one borrower.
func (cfg *Config) linkConfig(shared bool) pipeline.Config {
	return pipeline.Config{Timeout: cfg.Timeout, PingInterval: cfg.PingInterval, OnSilent: cfg.OnSilent, Shared: shared}
}

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
	// host of the sentinel's address in Addrs, or as announced.
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

func (s *Sentinel) used() bool { return s.Master != "" }

func (s Sentinel) withDefaults() Sentinel {
	s.Addrs = slices.Clone(s.Addrs)
	s.Timeout = cmp.Or(s.Timeout, time.Second)
	s.PollInterval = cmp.Or(s.PollInterval, 10*time.Second)
	if s.NodeMap == nil {
		s.NodeMap = func(addr string) string { return addr }
	}
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
