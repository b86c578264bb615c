package cluster

// Introduce adds name to the names of the connections to all nodes, except those that [Replicas] reads from; see
// [conn.Pool.Introduce].
func (c *Cluster) Introduce(name string) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, stops := &name, make(map[*node]func())
	c.titles[key] = stops
	for _, n := range c.nodes {
		stops[n] = n.pool.Introduce(name)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.titles, key)
		for _, stop := range stops {
			stop()
		}
		clear(stops)
	}
}
