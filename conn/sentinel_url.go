package conn

import (
	"errors"
	"net/url"
	"strings"
)

// splitSentinels splits a URL with several hosts into a URL with the first host, for net/url, and the other hosts.
func splitSentinels(s string) (first string, others []string) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !strings.HasSuffix(strings.ToLower(scheme), "-sentinel") {
		return s, nil
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	start := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[start:end], ",")
	return scheme + "://" + rest[:start] + hosts[0] + rest[end:], hosts[1:]
}

// setSentinels sets the sentinels, the first from u, and the fields in the path /master/db.
func (cfg *Config) setSentinels(u *url.URL, others []string) error {
	addr, err := hostPort(u, defaultSentinelPort)
	if err != nil {
		return err
	}
	addrs := []string{addr}
	for _, host := range others {
		if host == "" {
			return errors.New("a sentinel has no host")
		}
		one, err := url.Parse("redis://" + host)
		if err != nil || one.User != nil {
			return errors.New("malformed address of a sentinel")
		}
		if addr, err = hostPort(one, defaultSentinelPort); err != nil {
			return err
		}
		addrs = append(addrs, addr)
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return errors.New("the name of the master is missing: redis-sentinel://host/name")
	}
	cfg.Sentinel.Master, cfg.Sentinel.Addrs = master, addrs
	if cfg.TLS != nil {
		cfg.Sentinel.TLS = cfg.TLS.Clone()
	}
	if db != "" {
		return parseNumber(&cfg.DB, "path (the database)", db)
	}
	return nil
}

// setSentinelParameter sets a parameter for sentinels. known reports whether name is such a parameter.
func (cfg *Config) setSentinelParameter(name, value string) (known bool, err error) {
	s := &cfg.Sentinel
	if !s.used() {
		return false, nil
	}
	switch name {
	case "sentinel_username":
		s.Username = value
	case "sentinel_password":
		s.Password = value
	case "sentinel_tls":
		var on bool
		err := parseBool(&on, name, value)
		s.TLS = nil
		if on {
			s.TLS, err = withTLS()
		}
		return true, err
	case "sentinel_timeout":
		return true, parseDuration(&s.Timeout, name, value)
	case "poll_interval":
		return true, parseDuration(&s.PollInterval, name, value)
	default:
		return false, nil
	}
	return true, nil
}
