package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// slotVectors are answers of a server to CLUSTER KEYSLOT.
var slotVectors = []struct {
	key  string
	slot int
}{
	{"", 0}, {"foo", 12182}, {"{foo}bar", 12182}, {"{}foo", 9500}, {"foo{}", 5542}, {"foo{}{bar}", 8363},
	{"foo{{bar}}zap", 4015}, {"foo{bar}{zap}", 5061}, {"foo{bar", 15278}, {"{user1000}.following", 3443},
	{"a{b", 13340}, {"a}b{c}d", 7365}, {"{", 4092}, {"}{", 12793}, {"{{}}x", 4092}, {"\x00\xff", 7920},
	{"key", 12539}, {"mylock", 1711}, {"{mylock}:channel", 1711}, {"123456789", 12739},
	{string([]byte{83, 153, 134, 118, 229, 214, 244, 75, 140, 37, 215, 215}), 5463},
}

func TestSlot(t *testing.T) {
	for _, v := range slotVectors {
		if got := cluster.Slot(v.key); got != v.slot {
			t.Errorf("Slot(%q) = %d, want %d", v.key, got, v.slot)
		}
		if got := cluster.Slot([]byte(v.key)); got != v.slot {
			t.Errorf("Slot([]byte(%q)) = %d, want %d", v.key, got, v.slot)
		}
	}
}

func TestAllocSlot(t *testing.T) {
	key, bytes := strings.Repeat("{a key of some length} ", 3), []byte(strings.Repeat("more than a few bytes ", 9))
	if n := testing.AllocsPerRun(100, func() { cluster.Slot(key); cluster.Slot(bytes) }); n != 0 {
		t.Errorf("Slot allocates %v times", n)
	}
}

// bitwise computes a slot as the cluster specification defines it, one bit at a time.
func bitwise(key []byte) int {
	for open := range key {
		if key[open] != '{' {
			continue
		}
		for end := open + 1; end < len(key); end++ {
			if key[end] == '}' {
				if end > open+1 {
					key = key[open+1 : end]
				}
				break
			}
		}
		break
	}
	crc := 0
	for _, b := range key {
		for bit := 7; bit >= 0; bit-- {
			top := crc>>15 ^ int(b)>>bit&1
			crc = crc << 1 & 0xffff
			if top == 1 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

func FuzzSlot(f *testing.F) {
	for _, v := range slotVectors {
		f.Add([]byte(v.key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		if got, want := cluster.Slot(key), bitwise(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	})
}

// reply parses a reply in wire format, with | for the end of a line.
func reply(t testing.TB, wire string) resp.Value {
	t.Helper()
	v, err := resp.NewReader(strings.NewReader(strings.ReplaceAll(wire, "|", "\r\n")), resp.Limits{}).Read()
	if err != nil {
		t.Fatalf("%s: %v", wire, err)
	}
	return v
}

func str(s string) string { return "$" + itoa(len(s)) + "|" + s + "|" }

func itoa(n int) string {
	if n >= 10 {
		return itoa(n/10) + string(rune('0'+n%10))
	}
	return string(rune('0' + n))
}

// slots returns a reply to CLUSTER SLOTS with the single range 0 to 100 and the given nodes.
func slots(nodes ...string) string {
	return "*1|*" + itoa(2+len(nodes)) + "|:0|:100|" + strings.Join(nodes, "")
}

// The hosts in a reply of 10.0.0.9:7000, or of the named seed, and the resulting addresses.
func TestHosts(t *testing.T) {
	id, none := str("0123456789abcdef"), "*0|"
	other := "*2|" + str("10.0.0.2") + ":7002|"
	tests := []struct{ name, reply, from, want string }{
		{"C01", slots("*3|" + str("10.0.0.1") + ":7001|" + id), "", "10.0.0.1:7001"},
		{"C02", slots("*3|" + str("") + ":7001|" + id), "", "10.0.0.9:7001"},
		{"C03 RESP2", slots("*4|$-1|:7001|" + id + none), "", "10.0.0.9:7001"},
		{"C03 RESP3", slots("*4|_|:7001|" + id + "%1|" + str("ip") + str("10.0.0.1")), "", "10.0.0.9:7001"},
		{"C04 with an ip", slots("*4|"+str("?")+":7001|"+id+"*2|"+str("ip")+str("10.0.0.1"), other), "", "10.0.0.1:7001"},
		{"C04 alone", slots("*4|" + str("?") + ":7001|" + id + "*2|" + str("ip") + str("")), "", "10.0.0.9:7001"},
		{"C04 skipped", slots("*4|"+str("?")+":7001|"+id+none, other), "", ""},
		{"C05", slots("*4|" + str("node1.example") + ":7001|" + id + "*2|" + str("ip") + str("10.0.0.1")), "", "node1.example:7001"},
		{"C06 RESP2", slots("*4|" + str("?") + ":7001|" + id + "*4|" + str("hostname") + str("a") + str("ip") + str("10.0.0.1")), "", "10.0.0.1:7001"},
		{"C06 RESP3", slots("*4|" + str("?") + ":7001|" + id + "%2|" + str("hostname") + str("a") + str("ip") + str("10.0.0.1")), "", "10.0.0.1:7001"},
		{"C07", slots("*3|" + str("127.0.0.1") + ":7001|" + id), "", "10.0.0.9:7001"},
		{"C07 by name", slots("*3|" + str("127.0.0.1") + ":7001|" + id), "seed.example:7000", "seed.example:7001"},
		{"C07 of a name alike", slots("*3|" + str("127.example") + ":7001|" + id), "", "127.example:7001"},
		{"C08", slots("*3|" + str("127.0.0.1") + ":7001|" + id), "127.0.0.1:7000", "127.0.0.1:7001"},
		{"C08 IPv6", slots("*3|" + str("127.0.0.1") + ":7001|" + id), "[::1]:7000", "127.0.0.1:7001"},
		{"C08 by name", slots("*3|" + str("127.0.0.1") + ":7001|" + id), "localhost:7000", "127.0.0.1:7001"},
		{"C09", slots("*3|" + str("10.0.0.1") + ":0|" + id), "", "10.0.0.1:7000"},
		{"C10 loopback", slots("*3|" + str("::1") + ":7001|" + id), "", "[::1]:7001"},
		{"C10", slots("*3|" + str("2001:db8::1") + ":7001|" + id), "", "[2001:db8::1]:7001"},
		{"C21 two elements", slots("*2|" + str("10.0.0.1") + ":7001|"), "", "10.0.0.1:7001"},
		{"C21 five elements", slots("*5|" + str("10.0.0.1") + ":7001|" + id + none + str("more")), "", "10.0.0.1:7001"},
		{"C21 unknown metadata", slots("*5|" + str("10.0.0.1") + ":7001|" + id + ":5|:6|"), "", "10.0.0.1:7001"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			from := test.from
			if from == "" {
				from = "10.0.0.9:7000"
			}
			top, err := cluster.Parse(reply(t, test.reply), from)
			if err != nil {
				t.Fatal(err)
			}
			if got := top.Owner(50); got != test.want {
				t.Errorf("the owner is %q, want %q", got, test.want)
			}
			if want := 101; test.want != "" && top.Served() != want {
				t.Errorf("%d slots, want %d", top.Served(), want)
			}
		})
	}
}

func TestParseSlots(t *testing.T) {
	a, b, c := "*2|"+str("a")+":1|", "*2|"+str("b")+":2|", "*2|"+str("c")+":3|"
	top, err := cluster.Parse(reply(t, "*4|*4|:0|:99|"+a+b+"*3|:200|:200|"+a+"*4|:16383|:16383|"+c+b+"*3|:150|:250|"+c), "x:1")
	if err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]string{0: "a:1", 99: "a:1", 100: "", 149: "", 150: "c:3", 199: "c:3", 200: "a:1",
		201: "c:3", 250: "c:3", 251: "", 16382: "", 16383: "c:3"} {
		if got := top.Owner(slot); got != want {
			t.Errorf("C20: slot %d is served by %q, want %q", slot, got, want)
		}
	}
	if got := top.Masters(); !slices.Equal(got, []string{"a:1", "c:3"}) {
		t.Errorf("masters %q", got)
	}
	if got := top.Replicas(); !slices.Equal(got, []string{"b:2", "b:2"}) {
		t.Errorf("replicas %q", got)
	}
	if top, err := cluster.Parse(reply(t, "*0|"), "x:1"); err != nil || top.Served() != 0 {
		t.Errorf("C18: an empty reply: %d slots, %v", top.Served(), err)
	}
}

// One mistake makes the whole reply invalid.
func TestParseSlotsRefuses(t *testing.T) {
	node := "*3|" + str("10.0.0.1") + ":7001|" + str("id")
	good := "*3|:0|:100|" + node
	tests := []struct{ name, reply string }{
		{"no array", "+OK|"}, {"an error", "-ERR x|"}, {"null", "_|"}, {"a map", "%0|"},
		{"a range that is none", "*2|" + good + ":5|"}, {"an empty range", "*2|" + good + "*0|"},
		{"no master", "*2|" + good + "*2|:200|:300|"}, {"slot 16384", "*2|" + good + "*3|:200|:16384|" + node},
		{"below 0", "*2|" + good + "*3|:-1|:5|" + node}, {"start behind end", "*2|" + good + "*3|:300|:200|" + node},
		{"a slot that is text", "*2|" + good + "*3|$1|5|:200|" + node}, {"a slot that is null", "*2|" + good + "*3|_|:200|" + node},
		{"a node that is none", "*2|" + good + "*3|:200|:300|:5|"}, {"a node without a port", "*2|" + good + "*3|:200|:300|*1|$1|a|"},
		{"a host that is a number", "*2|" + good + "*3|:200|:300|*2|:5|:7001|"},
		{"a host that is an array", "*2|" + good + "*3|:200|:300|*2|*0|:7001|"},
		{"a port that is text", "*2|" + good + "*3|:200|:300|*2|$1|a|$4|7001|"}, {"a port too high", "*2|" + good + "*3|:200|:300|*2|$1|a|:65536|"},
		{"a replica that is none", "*2|" + good + "*4|:200|:300|" + node + "+x|"},
		{"too many ranges", "*16385|" + strings.Repeat(good, 16385)},
		{"too many nodes", slots(manyNodes(cluster.Slots + 1)...)},
	}
	for _, test := range tests {
		t.Run("C22 "+test.name, func(t *testing.T) {
			if top, err := cluster.Parse(reply(t, test.reply), "x:1"); err == nil {
				t.Errorf("accepted, with %d slots", top.Served())
			}
		})
	}
}

// manyNodes returns nodes of CLUSTER SLOTS.
func manyNodes(n int) []string {
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = "*2|" + str("h"+itoa(i)) + ":7001|"
	}
	return nodes
}

// A node is counted once, however many ranges it serves: a cluster whose slots are spread as finely as possible.
func TestParseManyRanges(t *testing.T) {
	wire := "*16384|"
	for slot := range cluster.Slots {
		wire += "*4|:" + itoa(slot) + "|:" + itoa(slot) + "|*2|" + str("h"+itoa(slot%3)) + ":1|*2|" + str("r"+itoa(slot%3)) + ":1|"
	}
	top, err := cluster.Parse(reply(t, wire), "x:1")
	if err != nil || top.Served() != cluster.Slots || len(top.Masters()) != 3 {
		t.Errorf("%d slots of %d masters, %v", top.Served(), len(top.Masters()), err)
	}
}

// Whatever a node sends, the parsed topology is consistent.
func FuzzParse(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(slots("*2|"+str("a")+":1|"), "|", "\r\n")))
	f.Fuzz(func(t *testing.T, wire []byte) {
		v, err := resp.NewReader(strings.NewReader(string(wire)), resp.Limits{Elements: 1000}).Read()
		if err != nil {
			return
		}
		top, err := cluster.Parse(v, "10.0.0.9:7000")
		if err != nil {
			return
		}
		served := 0
		for slot := range cluster.Slots {
			if owner := top.Owner(slot); owner != "" {
				served++
				if strings.HasPrefix(owner, "?:") || strings.HasPrefix(owner, ":") {
					t.Fatalf("slot %d is served by %q", slot, owner)
				}
			}
		}
		if served != top.Served() {
			t.Errorf("%d slots are served, and %d counted", served, top.Served())
		}
	})
}

func TestReadNodes(t *testing.T) {
	const text = "aa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-8000 [7-<-bb]\n" +
		"bb 10.0.0.2:6379@16379,two.example master - 0 1 2 connected 8001-16383\n" +
		"cc 10.0.0.3:6379@16379 slave bb 0 1 2 connected\n" +
		"dd 10.0.0.4:6379@16379 slave,fail bb 0 1 2 disconnected\n" +
		"ee :0@0 slave,noaddr bb 0 1 2 disconnected\n" +
		"ff 10.0.0.6:6379@16379 slave,fail? bb 0 1 2 connected\n" +
		"gg 10.0.0.7:6379@16379 master,fail - 0 1 3 disconnected\n" +
		"hh 10.0.0.8:6379@16379 master - 0 1 0 connected\n" +
		"jj 2001:db8::9:6379@16379 master - 0 1 0 connected\n" +
		"\nnot a node\n"
	for id, want := range map[string]struct {
		addr                  string
		replicas              int
		known, serves, itself bool
	}{
		"aa": {itself: true}, // a node does not report about itself
		"bb": {"10.0.0.2:6379", 2, true, true, false},
		"cc": {}, "gg": {}, "ii": {},
		"hh": {"10.0.0.8:6379", 0, true, false, false}, // without slots
		"jj": {"[2001:db8::9]:6379", 0, true, false, false},
	} {
		s := conn.Succession{Master: id}
		known, serves, itself := cluster.ReadNodes(text, &s)
		if s.Addr != want.addr || s.Replicas != want.replicas || known != want.known || serves != want.serves || itself != want.itself {
			t.Errorf("%s: %+v, %v, %v, %v, want %+v", id, s, known, serves, itself, want)
		}
	}
}

// A master does not know yet that it is replaced: its own report counts only if the cluster has no other node. However often the master
// reports, it does not displace the report of another node.
func TestReportsOfTwoNodes(t *testing.T) {
	two := []string{"10.0.0.1:6379", "10.0.0.2:6379"}
	for _, c := range []struct {
		name    string
		masters []string
		from    []string
		want    bool
	}{
		{"of the master", two, []string{two[0]}, false},
		{"of the master, the only node", two[:1], []string{two[0]}, true},
		{"of another node", two, []string{two[1]}, true},
		{"of another node, then of the master twice", two, []string{two[1], two[0], two[0]}, true},
		{"of an address that the report does not have, which may be the master's", two, []string{"redis:6379"}, false},
		{"of an address that the report does not have, of the only node", two[:1], []string{"redis:6379"}, true},
		{"of the master, then of another node twice", two, []string{two[0], two[1], two[1]}, true},
	} {
		if got := cluster.KnownAfter(c.masters, c.from...); got != c.want {
			t.Errorf("after a report %s: known = %v, want %v", c.name, got, c.want)
		}
	}
}

// A question that its caller gives up soon tells nothing of the nodes. A node that has not answered for longer is asked last,
// whatever the caller's limit: so the next question is for another node.
func TestSickAfterAQuestion(t *testing.T) {
	for limit, want := range map[time.Duration]int{100 * time.Millisecond: 0, 300 * time.Millisecond: 1} {
		for _, question := range []func(context.Context, *cluster.Cluster) error{
			func(ctx context.Context, c *cluster.Cluster) error {
				_, err := c.Succession(ctx, keyA, time.Now())
				return err
			},
			func(ctx context.Context, c *cluster.Cluster) error {
				_, err := c.SuccessionOf(ctx, "id", time.Now())
				return err
			},
		} {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				for _, node := range f.nodes {
					node.Mute(true)
				}
				if err := question(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want the end of the context", err)
				}
				got := 0
				for addr := range f.nodes {
					if cluster.Sick(c, addr) {
						got++
					}
				}
				if got != want {
					t.Errorf("%d nodes are asked last after a question of %v, want %d", got, limit, want)
				}
			})
		}
	}
}

func TestParseURL(t *testing.T) {
	cfg, err := cluster.ParseURL("redis-cluster://app:p%40ss@h1:7000,h2,[2001:db8::1]:7002/0?timeout=2s&max_redirects=3&refresh_interval=10s&conns=2")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"h1:7000", "h2:6379", "[2001:db8::1]:7002"}; !slices.Equal(cfg.Addrs, want) {
		t.Errorf("Addrs = %q, want %q", cfg.Addrs, want)
	}
	n := cfg.Node
	if n.Username != "app" || n.Password != "p@ss" || n.Timeout != 2*time.Second || n.Conns != 2 || n.TLS != nil || n.Addr != "" {
		t.Errorf("Node = %+v", n)
	}
	if cfg.MaxRedirects != 3 || cfg.RefreshInterval != 10*time.Second {
		t.Errorf("MaxRedirects = %d, RefreshInterval = %v", cfg.MaxRedirects, cfg.RefreshInterval)
	}
	if text := fmt.Sprintf("%v %#v", cfg, cfg); strings.Contains(text, "p@ss") || !strings.Contains(text, "redis-cluster://app@h1:7000,h2:6379") {
		t.Errorf("printed: %s", text)
	}
	if cfg, err := cluster.ParseURL("redis-cluster://h:1/0?max_redirects=3"); err != nil || cfg.MaxRedirects != 3 {
		t.Errorf("with parameters of the cluster alone: %+v, %v", cfg, err)
	}
	for scheme, tls := range map[string]bool{"redis-cluster": false, "valkey-cluster": false, "rediss-cluster": true,
		"valkeys-cluster": true, "REDIS-CLUSTER": false} {
		cfg, err := cluster.ParseURL(scheme + "://h:1")
		if err != nil || (cfg.Node.TLS != nil) != tls {
			t.Errorf("%s: TLS %v, %v", scheme, cfg.Node.TLS != nil, err)
		}
	}
	if cfg, err := cluster.ParseURL("rediss-cluster://h:1?tls_server_name=name"); err != nil || cfg.Node.TLS.ServerName != "name" {
		t.Errorf("tls_server_name: %v", err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, s := range []string{
		"", "redis://s3cr3t@h:1", "redis-cluster:h:1", "redis-cluster://h:1,h:x", "redis-cluster://u:s3cr3t@h:99999",
		"redis-cluster://u:s3cr3t@h:1/1", "redis-cluster://h:1?db=1", "redis-cluster://h:1?unknown=s3cr3t", "redis-cluster://h:1?max_redirects=s3cr3t",
		"redis-cluster://h:1?max_redirects=1&max_redirects=2", "redis-cluster://h:1?refresh_interval=5", "redis-cluster://u:s3cr/3t@h:1",
		"redis-cluster://u:s3cr#3t@h:1", "redis-cluster://u:s3%zz@h:1", "redis-cluster://h:1?timeout=1s&timeout=2s", "redis-cluster://[::1:5",
		"redis-cluster://h:1,", "redis-cluster://,h:1?timeout=1s", "redis-cluster://u:s3cr3t@h:1,,h:2", // no host is not 127.0.0.1 here
	} {
		cfg, err := cluster.ParseURL(s)
		if err == nil {
			t.Errorf("%q: accepted: %v", s, cfg)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "cluster: ") || strings.Contains(text, "s3cr") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestParseURLSaysWhatToWrite(t *testing.T) {
	for url, want := range map[string]string{
		"":                                  "cluster: url: the URL is empty: write redis-cluster://host:6379",
		"redis://u:s3cr3t@h":                "the scheme is for a single server: write redis-cluster://host:6379, or use conn.ParseURL",
		"redis://h?read_timeout=3s":         "the scheme is for a single server: write redis-cluster://host:6379",
		"Redis-Sentinel://h":                "the scheme is for a single server: write redis-cluster://host:6379",
		"h:6379":                            "scheme is not redis-cluster, rediss-cluster, valkey-cluster or valkeys-cluster: write",
		"redis-cluster://h?read_timeout=1s": `unknown parameter "read_timeout": write timeout`,
		"redis-cluster://h?addr=h:1":        `unknown parameter "addr": write the hosts with commas`,
		"redis-cluster://h1,u:s3cr3t@h2":    "comma before the @ may separate hosts: write user and password once, in front of all hosts",
		"redis-cluster://u:s3cr3t@a,u:x@b":  "comma before the @",
	} {
		if _, err := cluster.ParseURL(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("ParseURL(%q) = %v, want an error with %q", url, err, want)
		}
	}
}
