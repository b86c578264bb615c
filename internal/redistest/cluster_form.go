package redistest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// form makes a cluster of nodes without knowledge of each peer.
func (c *Cluster) form() error {
	for i, s := range c.nodes[:clusterMasters] {
		first, last := i*slotCount/clusterMasters, (i+1)*slotCount/clusterMasters-1
		if err := s.serveSlots(first, last); err != nil {
			return err
		}
	}
	for i, s := range c.nodes {
		if _, err := s.Try("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		// Each is introduced to all: left to gossip, the last two would hear of each other seconds later.
		for _, other := range c.nodes[:i] {
			if _, err := s.Try("CLUSTER", "MEET", "127.0.0.1", other.port); err != nil {
				return err
			}
		}
	}
	if err := c.await("nodes that know each other", func() error { return c.eachKnows(len(c.nodes)) }); err != nil {
		return err
	}
	for i, s := range c.nodes[clusterMasters:] {
		if err := c.replicate(s, c.nodes[i]); err != nil {
			return err
		}
	}
	return c.settled()
}

// serveSlots gives unserved slots to a node.
func (s *Server) serveSlots(first, last int) error {
	args := []any{"CLUSTER", "ADDSLOTSRANGE", first, last}
	if !s.AtLeast(7, 0) {
		args = []any{"CLUSTER", "ADDSLOTS"}
		for slot := first; slot <= last; slot++ {
			args = append(args, slot)
		}
	}
	_, err := s.Try(args...)
	return err
}

// replicate makes s a replica of master, once s knows that master is a master.
func (c *Cluster) replicate(s, master *Server) error {
	id, err := master.nodeID()
	if err != nil {
		return err
	}
	return c.await("a replica", func() error {
		_, err := s.Try("CLUSTER", "REPLICATE", id)
		return err
	})
}

// await repeats a question until the error is nil.
func (c *Cluster) await(what string, check func() error) error {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-limit.C:
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

// eachKnows returns nil if all running nodes know at least count nodes.
func (c *Cluster) eachKnows(count int) error {
	for _, s := range c.up() {
		members, err := s.members()
		if err != nil {
			return err
		}
		known := 0
		for _, m := range members {
			if !m.has("handshake") && !m.has("noaddr") {
				known++
			}
		}
		if known < count {
			return fmt.Errorf("%s knows %d of %d nodes", s.Addr(), known, count)
		}
	}
	return nil
}

// settled waits until all running nodes agree about the owners of all slots, every slot is served, and all replicas have their
// master's data.
func (c *Cluster) settled() error {
	return c.await("a cluster that is settled", func() error {
		// A new replica has no data yet: data is checked last.
		if err := c.agreed(); err != nil {
			return err
		}
		for _, s := range c.up() {
			if err := s.ready(); err != nil {
				return err
			}
		}
		return nil
	})
}

// agreed returns nil if all running nodes see the same topology, and know the epochs of its masters.
func (c *Cluster) agreed() error {
	view, epochs := "", map[string]string{}
	all := map[*Server][]member{}
	for _, s := range c.up() {
		members, err := s.members()
		if err != nil {
			return err
		}
		switch served := serving(members); {
		case view == "":
			view = served
		case view != served:
			return fmt.Errorf("the nodes see different topologies:\n%s\n%s", view, served)
		}
		for _, m := range members {
			if m.has("myself") && m.has("master") {
				epochs[m.id] = m.epoch
			}
		}
		all[s] = members
	}
	for s, members := range all {
		for _, m := range members {
			if epoch, ok := epochs[m.id]; ok && epoch != m.epoch {
				return fmt.Errorf("%s does not know the epoch of %s", s.Addr(), m.addr)
			}
		}
	}
	return nil
}

// ready returns nil if a node serves, and if a replica has its master's data.
func (s *Server) ready() error {
	info, err := s.info("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != "16384" {
		return fmt.Errorf("%s is in state %s with %s slots", s.Addr(), info["cluster_state"], info["cluster_slots_ok"])
	}
	if info, err = s.info("INFO", "replication"); err != nil {
		return err
	}
	if link, replica := info["master_link_status"]; replica && link != "up" {
		return fmt.Errorf("%s has no link to its master", s.Addr())
	}
	return nil
}

// info returns the lines of a reply in the manner of INFO.
func (s *Server) info(args ...any) (map[string]string, error) {
	v, err := s.Try(args...)
	if err != nil {
		return nil, err
	}
	text, err := v.Text()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// member is a line of CLUSTER NODES.
type member struct {
	id, addr, master string
	epoch            string
	flags            []string
	slots            []string // without migrating slots
}

func (m member) has(flag string) bool { return slices.Contains(m.flags, flag) }

// isMaster reports whether the node is a master, according to its own members.
func isMaster(members []member) bool {
	return slices.ContainsFunc(members, func(m member) bool { return m.has("myself") && m.has("master") })
}

// members returns the nodes that a node knows.
func (s *Server) members() ([]member, error) {
	v, err := s.Try("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	text, err := v.Text()
	if err != nil {
		return nil, err
	}
	var members []member
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, errors.New("a line of CLUSTER NODES is short")
		}
		m := member{id: f[0], addr: memberAddr(f[1]), flags: strings.Split(f[2], ","), master: f[3], epoch: f[6]}
		for _, slots := range f[8:] {
			if !strings.HasPrefix(slots, "[") {
				m.slots = append(m.slots, slots)
			}
		}
		members = append(members, m)
	}
	return members, nil
}

// memberAddr returns the address of a node listed by CLUSTER NODES as ip:port@port,name. The port is derived from the port of
// the bus: over the unix socket some versions omit the port for TLS.
func memberAddr(text string) string {
	_, bus, _ := strings.Cut(text, "@")
	bus, _, _ = strings.Cut(bus, ",")
	port, err := strconv.Atoi(bus)
	if err != nil {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port-busOffset))
}

// serving describes the owners of slots and the replicas of masters according to members, in an order independent of the node
// asked.
func serving(members []member) string {
	var lines []string
	for _, m := range members {
		switch {
		case m.has("fail") || m.has("fail?") || m.has("noaddr"):
		case m.has("master"):
			lines = append(lines, m.id+" serves "+strings.Join(m.slots, " "))
		default:
			lines = append(lines, m.id+" follows "+m.master)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// nodeID is the name of a node in the cluster.
func (s *Server) nodeID() (string, error) {
	v, err := s.Try("CLUSTER", "MYID")
	if err != nil {
		return "", err
	}
	return v.Text()
}

// up are the running nodes.
func (c *Cluster) up() []*Server {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(s *Server) bool { return !s.running() })
}

func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil
}
