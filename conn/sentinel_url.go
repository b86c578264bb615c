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
		return parse(&cfg.DB, "path (the database)", db)
	}
	return nil
}

// addFields adds the fields that parameters for sentinels set.
func (s *Sentinel) addFields(fields map[string]any) {
	fields["sentinel_username"] = &s.Username
	fields["sentinel_password"] = &s.Password
	fields["sentinel_tls"] = &s.TLS
	fields["sentinel_timeout"] = &s.Timeout
	fields["poll_interval"] = &s.PollInterval
}
