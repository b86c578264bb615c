package conn

import (
	"cmp"
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

// ParseURL parses a URL into a Config:
//
//	redis://user:password@host:6379/0?timeout=2s
//	rediss://…                                    the same over TLS
//	valkey://…  valkeys://…                       aliases of redis and rediss
//	unix://user:password@/run/redis.sock?db=0
//	redis-sentinel://user:password@host:26379,host:26379/master/0
//	rediss-sentinel://…                           the same over TLS, to sentinels and server
//	valkey-sentinel://…  valkeys-sentinel://…     aliases of redis-sentinel and rediss-sentinel
//
// Only the scheme is required, and the path of a unix socket. The defaults are the user "default", the host
// 127.0.0.1, the port 6379 and the database 0. Both redis://:password@host and redis://user@host are valid. An IPv6
// host needs brackets. Characters with a meaning in URLs (/ ? # @ %), common in passwords, must be percent-encoded.
//
// In a URL with sentinels:
//
//   - The hosts, at least one, are sentinels, with the default port 26379.
//   - The path is the name of the master, optionally followed by the database number.
//   - User and password are for the server. The parameters sentinel_username, sentinel_password and sentinel_tls
//     (true or false; the default follows the scheme) are for the sentinels.
//   - The parameters sentinel_timeout and poll_interval set Timeout and PollInterval of Config.Sentinel.
//
// The other parameters set the field of Config with the same name: db (which must not contradict the path), protocol,
// client_name, no_identity, dial_timeout, timeout, ping_interval, max_age, idle_timeout, conns, max_conns, and with
// TLS tls_server_name. Durations are in Go's notation, such as 1m30s; no_identity is true or false. An unknown or
// repeated parameter is an error. Other settings of TLS, such as a private authority or a client certificate, belong
// in the TLS field of the result.
//
// User and password stand once, before all hosts. A comma in front of the @ is refused where it may separate hosts, as in
// host,user:password@host: in a user or password it can always be written as %2C.
//
// An error contains no part of the URL except the scheme and the name of a parameter, since the password might be
// anywhere in the URL.
func ParseURL(s string) (Config, error) {
	if err := checkScheme(s); err != nil {
		return Config{}, fmt.Errorf("conn: url: %w", err)
	}
	scheme, user, hosts, rest := cutURL(s)
	first, others := s, []string(nil)
	if strings.HasSuffix(strings.ToLower(scheme), "-sentinel") {
		list := strings.Split(hosts, ",")
		first, others = scheme+"://"+user+list[0]+rest, list[1:] // net/url knows a single host
	}
	u, err := url.Parse(first)
	if err != nil || strings.ContainsAny(rest, "@#") {
		return Config{}, errors.New("conn: url: malformed; in user and password all but letters, digits " +
			"and -._~ must be percent-encoded")
	}
	if strayHost(user) {
		return Config{}, errors.New("conn: url: a comma before the @ may separate hosts: write user and password once, " +
			"in front of all hosts, and a comma in them as %2C")
	}
	cfg, db := Config{}, ""
	kind, sentinels := strings.CutSuffix(u.Scheme, "-sentinel")
	if kind == "rediss" || kind == "valkeys" {
		cfg.TLS, err = withTLS()
	}
	switch {
	case err != nil:
	case kind == "unix":
		err = cfg.setSocket(u)
	case sentinels:
		db, err = cfg.setSentinels(u, others)
	default:
		db = strings.TrimPrefix(u.Path, "/")
		cfg.Addr, err = hostPort(u, defaultPort)
	}
	if err == nil && db != "" {
		err = parse(&cfg.DB, "path (the database)", db)
	}
	if err == nil {
		err = cfg.setParameters(u, db != "")
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

// cutURL splits a URL. user ends with the last @ of the authority. rest begins behind the hosts, with path, query or fragment;
// an @ or # in it is the sign of a password without percent-encoding: net/url would take the user for the host and the rest of
// the password for the path, which errors might contain. Without :// there are no scheme and user.
func cutURL(s string) (scheme, user, hosts, rest string) {
	scheme, authority, ok := strings.Cut(s, "://")
	if !ok {
		scheme, authority = "", s
	}
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority, rest = authority[:i], authority[i:]
	}
	if i := strings.LastIndexByte(authority, '@') + 1; ok {
		user, authority = authority[:i], authority[i:]
	}
	return scheme, user, authority, rest
}

// strayHost reports a comma before the last @ that may follow a host or the user and password of a host. net/url would take
// everything before that @ for one user and password. Its own texts of passwords contain plain commas.
func strayHost(user string) bool {
	user = strings.TrimSuffix(user, "@")
	first, _, more := strings.Cut(user, ",")
	host, port, _ := strings.Cut(first, ":")
	return more && (first == "" || strings.Contains(user, "@") || host != "" && strings.Trim(port, "0123456789") == "")
}

// hostPort returns the address in u, with defaults for a missing host or port.
func hostPort(u *url.URL, port string) (string, error) {
	if u.Opaque != "" {
		return "", errors.New("no // after the scheme: write redis://host:6379")
	}
	host := u.Hostname()
	if strings.Contains(u.Host, ",") {
		return "", errors.New("more than one host: write redis-cluster://host,host or redis-sentinel://host,host/master")
	}
	if strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "[") {
		return "", errors.New("host is not one name or address; an IPv6 address needs brackets")
	}
	host, port = cmp.Or(host, "127.0.0.1"), cmp.Or(u.Port(), port)
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

// setParameters sets the fields that the query of u names. dbInPath: the path has set DB.
func (cfg *Config) setParameters(u *url.URL, dbInPath bool) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("malformed parameters")
	}
	inPath := cfg.DB
	for _, name := range slices.Sorted(maps.Keys(query)) {
		field := cfg.field(name)
		switch {
		case len(query[name]) > 1:
			return fmt.Errorf("parameter %q is repeated", name)
		case name == "tls_server_name" && cfg.TLS == nil:
			return errors.New("parameter tls_server_name needs the scheme rediss or valkeys")
		case field == nil:
			return unknownParameter(name)
		}
		if err := parse(field, name, query[name][0]); err != nil {
			return err
		}
		if name == "db" && dbInPath && cfg.DB != inPath {
			return errors.New("path and parameter db name different databases")
		}
	}
	return nil
}

// field returns a pointer to the field that a parameter sets; nil for an unknown parameter.
func (cfg *Config) field(name string) any {
	fields := map[string]any{
		"db":            &cfg.DB,
		"protocol":      &cfg.Protocol,
		"client_name":   &cfg.ClientName,
		"no_identity":   &cfg.NoIdentity,
		"dial_timeout":  &cfg.DialTimeout,
		"timeout":       &cfg.Timeout,
		"ping_interval": &cfg.PingInterval,
		"max_age":       &cfg.MaxAge,
		"idle_timeout":  &cfg.IdleTimeout,
		"conns":         &cfg.Conns,
		"max_conns":     &cfg.MaxConns,
	}
	if cfg.TLS != nil {
		fields["tls_server_name"] = &cfg.TLS.ServerName
	}
	if s := &cfg.Sentinel; s.used() {
		fields["sentinel_username"] = &s.Username
		fields["sentinel_password"] = &s.Password
		fields["sentinel_tls"] = &s.TLS
		fields["sentinel_timeout"] = &s.Timeout
		fields["poll_interval"] = &s.PollInterval
	}
	return fields[name]
}

// parse parses the value of a parameter into a field. It drops the errors of strconv and time, which quote their input.
func parse(field any, name, value string) (err error) {
	switch field := field.(type) {
	case *string:
		*field = value
	case *int:
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("%s is not a number, 0 or more", name)
		}
		*field = int(n)
	case *bool:
		if *field, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%s is neither true nor false", name)
		}
	case *time.Duration:
		if *field, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%s is not a duration such as 5s", name)
		}
	case **TLSConfig:
		on := false
		if err = parse(&on, name, value); err == nil && on {
			*field, err = withTLS()
		} else {
			*field = nil
		}
	}
	return err
}

// checkScheme reports a URL without a known scheme, and what to write instead. It repeats a scheme only if the scheme
// is made of letters, + and -, and never the rest of the URL.
func checkScheme(s string) error {
	scheme, _, ok := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case strings.TrimSpace(s) == "":
		return errors.New("the URL is empty: write redis://host:6379")
	case !ok:
		scheme, _, ok = strings.Cut(scheme, ":")
		if ok && knownScheme(scheme) {
			return nil // refused by a later step, which knows the form of this scheme
		}
		return errors.New("no scheme: write redis:// in front of the address, as in redis://host:6379")
	case knownScheme(scheme):
		return nil
	case strings.HasSuffix(scheme, "-cluster") && knownScheme(strings.TrimSuffix(scheme, "-cluster")):
		return fmt.Errorf("scheme %s is for a cluster: use cluster.ParseURL and cluster.Open, or lockwire.Open", scheme)
	}
	found := "scheme"
	if len(scheme) <= 20 && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+-") == "" {
		found += " " + scheme
	}
	return errors.New(found + " is not redis, rediss (TLS), valkey, valkeys, unix, or one of the first four with -sentinel: " +
		"write redis://host:6379")
}

func knownScheme(scheme string) bool {
	switch strings.TrimSuffix(scheme, "-sentinel") {
	case "redis", "rediss", "valkey", "valkeys":
		return true
	}
	return scheme == "unix"
}

// unknownParameter is the error for a parameter that ParseURL does not know. For the names of other clients, the error
// names the counterpart.
func unknownParameter(name string) error {
	for _, other := range counterparts {
		if slices.Contains(strings.Fields(other.names), name) {
			return fmt.Errorf("unknown parameter %q: %s", name, other.advice)
		}
	}
	return fmt.Errorf("unknown parameter %q", name)
}

// counterparts are the parameters of other clients, with advice.
var counterparts = [...]struct{ names, advice string }{
	{"read_timeout write_timeout socket_timeout command_timeout", "write timeout"},
	{"connect_timeout socket_connect_timeout connection_timeout", "write dial_timeout"},
	{"pool_size max_active_conns max_connections", "write conns (connections shared by all callers) or max_conns (connections for one caller at a time)"},
	{"min_idle_conns max_idle_conns pool_timeout pool_fifo", "leave it out, since callers share connections"},
	{"conn_max_lifetime max_conn_age", "write max_age"},
	{"conn_max_idle_time idle_check_frequency", "write idle_timeout"},
	{"health_check_interval", "write ping_interval"},
	{"max_retries min_retry_backoff max_retry_backoff", "set Config.Retry in the program"},
	{"tls ssl", "write the scheme rediss"},
	{"skip_verify ssl_cert_reqs ssl_ca_certs ssl_certfile ssl_keyfile", "write the scheme rediss and set Config.TLS in the program"},
	{"database", "write db"},
	{"clientName", "write client_name"},
	{"user username pass password", "write redis://user:password@host"},
	{"addr", "write the hosts with commas: redis-cluster://host:6379,host:6380"},
	{"master_name sentinelMasterId", "write the name of the master as the path: redis-sentinel://host:26379/name"},
}

// setSentinels sets the sentinels, the first from u, and the name of the master in the path /master/db.
func (cfg *Config) setSentinels(u *url.URL, others []string) (db string, err error) {
	addr, err := hostPort(u, defaultSentinelPort)
	if err != nil {
		return "", err
	}
	addrs := []string{addr}
	for _, host := range others {
		if host == "" {
			return "", errors.New("a sentinel has no host")
		}
		one, err := url.Parse("redis://" + host)
		if err != nil || one.User != nil {
			return "", errors.New("malformed address of a sentinel")
		}
		if addr, err = hostPort(one, defaultSentinelPort); err != nil {
			return "", err
		}
		addrs = append(addrs, addr)
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return "", errors.New("the name of the master is missing: redis-sentinel://host/name")
	}
	cfg.Sentinel.Master, cfg.Sentinel.Addrs = master, addrs
	if cfg.TLS != nil {
		cfg.Sentinel.TLS = cfg.TLS.Clone()
	}
	return db, nil
}
