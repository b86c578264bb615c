package conn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
