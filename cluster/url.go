package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
)

var schemes = map[string]string{
	"redis-cluster":   "redis",
	"valkey-cluster":  "redis",
	"rediss-cluster":  "rediss",
	"valkeys-cluster": "rediss",
}

// ParseURL returns the Config described by a URL:
//
//	redis-cluster://user:password@host:6379,host:6380?timeout=2s
//	rediss-cluster://…                                     the same over TLS
//	valkey-cluster://…  valkeys-cluster://…                other names of these two
//
// Each host becomes an element of Config.Addrs; a single host is enough. The parameters
// max_redirects and refresh_interval set the fields of Config. Everything else is as for
// conn.ParseURL, and sets Config.Node.
//
// An error never contains the URL or any part except the name of a parameter, because the password
// may be anywhere in the URL.
func ParseURL(s string) (Config, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	node, known := schemes[strings.ToLower(scheme)]
	if !ok || !known {
		return Config{}, schemeError(s)
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	cfg := Config{}
	tail, err := cfg.takeParameters(tail)
	if err != nil {
		return Config{}, err
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" && hosts != "" {
			return Config{}, errors.New("cluster: url: a node has no host")
		}
		one, err := conn.ParseURL(node + "://" + user + host + tail)
		if err != nil {
			return Config{}, fmt.Errorf("cluster: %w", err)
		}
		cfg.Addrs = append(cfg.Addrs, one.Addr)
		one.Addr = ""
		cfg.Node = one
	}
	if err := cfg.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

func schemeError(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("cluster: url: the URL is empty: write redis-cluster://host:6379")
	}
	scheme, _, _ := strings.Cut(strings.ToLower(s), "://")
	switch strings.TrimSuffix(scheme, "-sentinel") {
	case "redis", "rediss", "valkey", "valkeys", "unix":
		return errors.New("cluster: url: the scheme is for a single server: write redis-cluster://host:6379, " +
			"or use conn.ParseURL, or lockwire.Open")
	}
	return errors.New("cluster: url: scheme is not redis-cluster, rediss-cluster, valkey-cluster or valkeys-cluster: " +
		"write redis-cluster://host:6379")
}

// takeParameters sets the parameters of the cluster, and returns the remaining text after the
// hosts.
func (cfg *Config) takeParameters(tail string) (rest string, err error) {
	path, query, ok := strings.Cut(tail, "?")
	if !ok {
		return tail, nil
	}
	var others []string
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(text)
		switch {
		case name != "max_redirects" && name != "refresh_interval":
			others = append(others, pair)
			continue
		case seen[name]:
			return "", fmt.Errorf("cluster: url: parameter %q is repeated", name)
		case err != nil:
		case name == "max_redirects":
			cfg.MaxRedirects, err = strconv.Atoi(value)
		default:
			cfg.RefreshInterval, err = time.ParseDuration(value)
		}
		seen[name] = true
		if err != nil {
			return "", fmt.Errorf("cluster: url: %s is not a number, or a duration such as 5s", name)
		}
	}
	if len(others) == 0 {
		return path, nil
	}
	return path + "?" + strings.Join(others, "&"), nil
}
