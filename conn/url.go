package conn

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultPort = "6379"

// ParseURL makes a Config of a URL:
//
//	redis://user:password@host:6379/0?timeout=2s
//	rediss://…                                    the same over TLS
//	valkey://…  valkeys://…                       other names of these two
//	unix://user:password@/run/redis.sock?db=0
//	redis-sentinel://user:password@host:26379,host:26379/master/0
//	rediss-sentinel://…                           the same over TLS, to sentinels and server alike
//	valkey-sentinel://…  valkeys-sentinel://…     other names of these two
//
// Everything but the scheme may be missing, and but the path of a unix socket: the user is then "default", the host
// 127.0.0.1, the port 6379, the database 0. redis://:password@host and redis://user@host are both understood. An
// IPv6 host stands in brackets. Characters with a meaning in URLs, in a password above all (/ ? # @ %), must be
// percent-encoded.
//
// With sentinels the hosts, at least one, are theirs, of the port 26379 if nothing else is said; the first part of the
// path is the name they know the master by; and user and password are the server's. What the sentinels ask for is in
// the parameters sentinel_username, sentinel_password and sentinel_tls (true or false; as the scheme says if missing);
// sentinel_timeout and poll_interval set the Timeout and PollInterval of Config.Sentinel.
//
// The parameters, each at most once, set the field of Config named like them, to the same effect: db (where the
// path does not say otherwise), protocol, client_name, no_identity, dial_timeout, timeout, ping_interval, max_age,
// idle_timeout, conns, max_conns; with TLS also tls_server_name. Durations are written as in Go: 1m30s; no_identity is
// true or false. Anything else is an
// error. What more there is to TLS, such as a private authority or a client certificate, is set in the result's TLS.
//
// An error never holds the URL or a part of it but the name of a parameter: the password might be anywhere in it.
func ParseURL(s string) (Config, error) {
	first, others := splitSentinels(s)
	u, err := url.Parse(first)
	if err != nil || strayPassword(s) {
		return Config{}, errors.New("conn: url: malformed; in user and password all but letters, digits " +
			"and -._~ must be percent-encoded")
	}
	cfg := Config{}
	switch u.Scheme {
	case "redis", "valkey":
		err = cfg.setHost(u)
	case "rediss", "valkeys":
		if cfg.TLS, err = withTLS(); err == nil {
			err = cfg.setHost(u)
		}
	case "unix":
		err = cfg.setSocket(u)
	case "redis-sentinel", "valkey-sentinel":
		err = cfg.setSentinels(u, others)
	case "rediss-sentinel", "valkeys-sentinel":
		if cfg.TLS, err = withTLS(); err == nil {
			err = cfg.setSentinels(u, others)
		}
	default:
		err = errors.New("scheme is not redis, rediss, valkey, valkeys, unix, or one of these two pairs with -sentinel")
	}
	if err == nil {
		err = cfg.setParameters(u)
	}
	if err != nil {
		return Config{}, fmt.Errorf("conn: url: %w", err)
	}
	cfg.Username = u.User.Username()
	cfg.Password, _ = u.User.Password()
	if err := cfg.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// strayPassword reports an @ or # where only a password written without percent-encoding puts one: net/url then sees
// the user as the host and the rest of the password as path, query or fragment, which errors might name.
func strayPassword(s string) bool {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	i := strings.IndexAny(s, "/?#")
	return i >= 0 && strings.ContainsAny(s[i:], "@#")
}

func (cfg *Config) setHost(u *url.URL) (err error) {
	if cfg.Addr, err = hostPort(u, defaultPort); err != nil {
		return err
	}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		return parseNumber(&cfg.DB, "path (the database)", db)
	}
	return nil
}

// hostPort returns the address in u, with what it leaves out.
func hostPort(u *url.URL, port string) (string, error) {
	if u.Opaque != "" {
		return "", errors.New("no // after the scheme")
	}
	host := u.Hostname()
	if strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "[") {
		return "", errors.New("host is not one name or address; an IPv6 address needs brackets")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("port is not between 1 and 65535")
	}
	return net.JoinHostPort(host, port), nil
}

func (cfg *Config) setSocket(u *url.URL) error {
	if u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.Path == "/" {
		return errors.New("a unix socket is written unix:///path")
	}
	cfg.Network, cfg.Addr = "unix", u.Path
	return nil
}

func (cfg *Config) setParameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("malformed parameters")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) > 1 {
			return fmt.Errorf("parameter %q is repeated", name)
		}
		if err := cfg.setParameter(name, query[name][0], u); err != nil {
			return err
		}
	}
	return nil
}

func (cfg *Config) setParameter(name, value string, u *url.URL) error {
	switch name {
	case "db":
		inPath := cfg.DB
		if err := parseNumber(&cfg.DB, name, value); err != nil {
			return err
		}
		if cfg.Network != "unix" && cfg.pathHasDB(u) && cfg.DB != inPath {
			return errors.New("path and parameter db name different databases")
		}
	case "protocol":
		return parseNumber(&cfg.Protocol, name, value)
	case "client_name":
		cfg.ClientName = value
	case "no_identity":
		return parseBool(&cfg.NoIdentity, name, value)
	case "dial_timeout":
		return parseDuration(&cfg.DialTimeout, name, value)
	case "timeout":
		return parseDuration(&cfg.Timeout, name, value)
	case "ping_interval":
		return parseDuration(&cfg.PingInterval, name, value)
	case "max_age":
		return parseDuration(&cfg.MaxAge, name, value)
	case "idle_timeout":
		return parseDuration(&cfg.IdleTimeout, name, value)
	case "conns":
		return parseNumber(&cfg.Conns, name, value)
	case "max_conns":
		return parseNumber(&cfg.MaxConns, name, value)
	case "tls_server_name":
		if cfg.TLS == nil {
			return errors.New("parameter tls_server_name needs the scheme rediss or valkeys")
		}
		cfg.TLS.ServerName = value
	default:
		known, err := cfg.setSentinelParameter(name, value)
		if !known {
			return fmt.Errorf("unknown parameter %q", name)
		}
		return err
	}
	return nil
}

// pathHasDB reports whether the path of u names a database.
func (cfg *Config) pathHasDB(u *url.URL) bool {
	path := strings.Trim(u.Path, "/")
	if cfg.Sentinel.used() {
		_, path, _ = strings.Cut(path, "/")
	}
	return path != ""
}

// parseNumber, parseBool and parseDuration drop the errors of strconv and time, which quote what they were given.
func parseNumber(p *int, name, value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return fmt.Errorf("%s is not a number from 0 on", name)
	}
	*p = int(n)
	return nil
}

func parseBool(p *bool, name, value string) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%s is neither true nor false", name)
	}
	*p = on
	return nil
}

func parseDuration(p *time.Duration, name, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%s is not a duration such as 5s", name)
	}
	*p = d
	return nil
}
