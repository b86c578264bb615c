package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Config says where a server is and how to treat it. The zero Config is ready: a server without a password on
// 127.0.0.1:6379. It is copied by what takes it, so changing it afterwards changes nothing; what it points to
// (TLS, Extra, Trace, Logger) must not be changed any more.
//
// For a number or a duration, 0 is the default and below 0 is off, unless its comment says otherwise.
type Config struct {
	// Network is "tcp" or "unix"; with a Dial of your own it may be anything that one understands. "" is "tcp".
	Network string

	// Addr is host:port, an IPv6 host in brackets, or the path of a unix socket. A host name is resolved at each
	// dial, never remembered. "" is 127.0.0.1:6379.
	Addr string

	// Sentinel, if its Master is set, takes the place of Addr: sentinels say where the server is.
	Sentinel Sentinel

	// Username and Password identify the client. A Password without a Username is that of the user "default";
	// both empty means not to authenticate. They appear in no error, log or trace.
	Username, Password string

	// Credentials, if set, is asked for the two above at every dial, under the limit of that dial, and takes their
	// place. It may be called by several goroutines at once, and must return when its ctx ends.
	Credentials func(ctx context.Context) (username, password string, err error)

	// ClientName is the name in CLIENT LIST: printable ASCII without spaces. "" gives none.
	ClientName string

	// NoIdentity leaves out of the handshake who the client is: CLIENT SETINFO, and the ClientName. A server that closes the
	// connection instead of answering, as some proxies do, is dialled once more without them in any case; this spares the
	// first of these dials.
	NoIdentity bool

	// DB is the number of the database.
	DB int

	// Protocol is the version of RESP: 2 or 3 is that one only, and 0 is 3, or 2 where the server agrees to no other, or
	// closes the connection when it is asked.
	Protocol int

	// TLS, if set, encrypts. It is cloned. Where it names no server, ServerName is the host in Addr; over a unix
	// socket it must name one. Client certificates are set here too, GetClientCertificate being asked at every dial.
	// A server that leaves the handshake without an answer for half a second is sent a PING in plain text, on a connection
	// of its own: if it answers, the dial ends and says so.
	TLS *TLSConfig

	// Dial, if set, takes the place of a net.Dialer. It must return when its ctx ends. What it returns is closed by
	// this package, and needs deadlines that work.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Extra commands end each handshake, in order; an error in reply fails the dial. They must be such that doing
	// them twice does no harm: a server that does not know RESP3 may be given them a second time.
	Extra []resp.Command

	// DialTimeout is how long connecting, TLS and the handshake may take together. The ctx of a call may be
	// stricter. 0 is 5 s, or 2 s with Sentinel, as a server that cannot be reached for longer may have been replaced;
	// below 0 leaves it to the ctx.
	DialTimeout time.Duration

	// Timeout is how long nothing may come while commands wait for their replies. Then the connection is given up, and
	// all of them fail. Each reply, also one of a batch, and each 16 KiB of a large reply start the time anew; so does each
	// 256 KiB that is written of a large command whose turn it is.
	//
	// The deadline of a ctx that ends later extends the time, for all commands on that connection: on an exclusive
	// connection (With, Dial) up to the deadline, and on a shared one by PingInterval at most, since a server that is
	// busy with a slow command looks like a server that is gone. A command that may take longer belongs on an exclusive
	// connection, or needs a longer Timeout. A blocking command has no limit.
	//
	// Timeout also bounds each write of a Stream. 0 is 5 s; below 0 is for ever.
	Timeout time.Duration

	// PingInterval is how long a connection may be silent before the server is asked for a sign of life, which is due
	// within Timeout. A shared connection to a server that has gone mute is given up within both together, however late
	// the deadlines of the callers are. 0 is 5 s; below 0 never asks, and sets no bound to what a deadline extends.
	PingInterval time.Duration

	// MaxAge is the age, give or take a tenth, at which a connection is replaced: new credentials and certificates
	// come into use by this. 0 and below: no limit.
	MaxAge time.Duration

	// IdleTimeout is how long an exclusive connection may be unused before it is closed. 0 is 5 minutes; below 0
	// keeps it.
	IdleTimeout time.Duration

	// Conns is the number of connections shared by all callers. 0 is 1, which one core keeps busy; it may not be
	// negative.
	Conns int

	// MaxConns is the most exclusive connections open at once, each lent to one caller at a time. 0 is 16; it may
	// not be negative.
	MaxConns int

	// Limits bound what a reply may make this process read and keep.
	Limits resp.Limits

	// Retry bounds the repetition of what certainly did not run.
	Retry Retry

	// OnPush, if set, is given the pushes on shared connections that nobody asked for, one at a time and in the order
	// of each connection. No reply waits for it; while it blocks, the oldest of more than a thousand pushes are
	// dropped.
	OnPush func(resp.Value)

	// OnSilent, if set, is told the address of a server that has owed an answer for a second, the handshake's too, and
	// has said nothing since; about twice a second while that lasts. Under a blocking command it is told as often as an
	// idle connection is sent a PING. It must neither block nor close the Pool or Conn.
	OnSilent func(addr string)

	// Trace, if set, is told of dials and commands.
	Trace *Trace

	// Logger, if set, is told of changes of state: a connection lost, a server found again. Nil is silent.
	Logger Logger
}

// A Logger is told what may need a look, in a message and pairs of a name and a value. A *slog.Logger is one; a program that
// does not log has none of log/slog linked. Its method may be called by many goroutines at once, and none of them goes on
// before it returns.
type Logger interface {
	Warn(msg string, args ...any)
}

// Retry bounds how often and how long one call repeats what certainly did not run: dialling, commands of which no
// byte was written, and those the server says it did not execute. One budget spans all causes. Between attempts it
// pauses for MinBackoff, doubled each time up to MaxBackoff, with jitter. The pause between dials that fail is shared by all
// callers, and quadrupled each time.
type Retry struct {
	// Attempts is how often a call tries in all. 0 is as often as Budget permits; below 0 is once. If it is 0, Open tries 4
	// times unless there are sentinels, so that a wrong address shows soon.
	Attempts int

	// MinBackoff and MaxBackoff bound the pause. 0 is 8 ms and 512 ms; neither may be negative.
	MinBackoff, MaxBackoff time.Duration

	// Budget is how long after its first failed attempt a call may begin another. 0 is 5 s; below 0 leaves it to the
	// ctx.
	Budget time.Duration
}

// withDefaults fills in what is zero. Below zero stays: off is "not above zero" to whoever reads the result, and
// calling it twice changes nothing.
func (cfg Config) withDefaults() Config {
	if cfg.Network == "" {
		cfg.Network = "tcp"
	}
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

// validate tells what in a Config with defaults cannot work. Its errors hold no value but numbers.
func (cfg Config) validate() error {
	if err := cfg.validateAddr(); err != nil {
		return err
	}
	switch {
	case cfg.DB < 0:
		return fmt.Errorf("conn: DB is %d, below 0", cfg.DB)
	case cfg.Protocol != 0 && cfg.Protocol != 2 && cfg.Protocol != 3:
		return fmt.Errorf("conn: Protocol is %d, not 0, 2 or 3", cfg.Protocol)
	case strings.ContainsFunc(cfg.ClientName, func(r rune) bool { return r < '!' || r > '~' }):
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
		if !extra(cmd) {
			return fmt.Errorf("conn: Extra[%d]: %s has no place in a handshake", i, printable(cmd.Name()))
		}
	}
	return nil
}

// extra reports whether a command may be in Extra: it is answered by one reply, and leaves the connection as the
// handshake makes it.
func extra(cmd resp.Command) bool {
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

// serverName is the name a certificate must bear when TLS names none: the host as it was announced.
func (cfg Config) serverName() string {
	if cfg.Network == "unix" {
		return ""
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, "%") // the zone of an IPv6 address is no part of a certificate
	return host
}

// String returns the Config as a URL without its password, so that printing one betrays nothing.
func (cfg Config) String() string {
	cfg = cfg.withDefaults()
	var b strings.Builder
	switch {
	case cfg.Network == "unix":
		b.WriteString("unix")
	case cfg.TLS != nil:
		b.WriteString("rediss")
	default:
		b.WriteString("redis")
	}
	if cfg.Sentinel.used() {
		b.WriteString("-sentinel")
	}
	b.WriteString("://")
	if cfg.Username != "" {
		b.WriteString(cfg.Username + "@")
	}
	if cfg.Sentinel.used() {
		b.WriteString(strings.Join(cfg.Sentinel.Addrs, ",") + "/" + cfg.Sentinel.Master)
	} else {
		b.WriteString(cfg.Addr)
	}
	if cfg.DB != 0 {
		b.WriteString("?db=" + strconv.Itoa(cfg.DB))
	}
	return b.String()
}

// GoString is String, for %#v.
func (cfg Config) GoString() string { return cfg.String() }
