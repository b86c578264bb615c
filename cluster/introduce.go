package cluster

// Introduce adds name to the names of the connections to all nodes, except those that [Replicas] reads from; see
// [conn.Pool.Introduce].
func (c *Cluster) Introduce(name string) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.titles == nil {
		c.titles = make(map[*string]struct{})
	}
	key := &name
	c.titles[key] = struct{}{}
	for _, n := range c.nodes {
		n.introduce(key)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.titles, key)
		for _, n := range c.nodes {
			if stop := n.titles[key]; stop != nil {
				stop()
				delete(n.titles, key)
			}
		}
	}
}
