package fakeredis

import "time"

// hear takes in the nodes that are down to a master.
func (c *cluster) hear(h header) {
	said := map[int]bool{}
	for _, i := range h.failing {
		said[i] = true
	}
	for i, p := range c.peers {
		switch {
		case i == c.self || i == h.from:
		case !said[i]:
			delete(p.reports, h.from)
		default:
			p.reports[h.from] = time.Now()
			c.markFailed(i)
		}
	}
}

// markFailed marks a node as failed if the node is down to a majority of the masters, including this node if it is a master.
func (c *cluster) markFailed(i int) {
	p := c.peers[i]
	if !p.pfail || p.fail {
		return
	}
	n := 0
	for from, at := range p.reports {
		if time.Since(at) > 2*c.opts.Timeout {
			delete(p.reports, from)
		} else {
			n++
		}
	}
	if c.isMaster() {
		n++
	}
	if n < c.size()/2+1 {
		return
	}
	c.failed(i)
	c.all(func(to *cluster) { to.failed(i) })
}

// failed marks a node as failed.
func (c *cluster) failed(i int) {
	if p := c.peers[i]; i != c.self && !p.fail {
		p.pfail, p.fail, p.failAt = false, true, time.Now()
		c.updateState()
	}
}

// updateState decides whether the node serves keys.
func (c *cluster) updateState() {
	now := time.Now()
	if c.isMaster() && !c.ok && now.Sub(c.started) < clusterWritable {
		return
	}
	good, size, reachable := true, 0, 0
	for i, p := range c.peers {
		if p.master >= 0 || !c.serves(i) {
			continue
		}
		if size++; !p.fail && !p.pfail {
			reachable++
		}
		good = good && (c.opts.Partial || !p.fail)
	}
	good = good && (c.opts.Partial || c.lacking == 0)
	if reachable < size/2+1 {
		good, c.minority = false, now
	}
	if good == c.ok {
		return
	}
	if delay := min(max(c.opts.Timeout, clusterRejoinMin), clusterRejoinMax); good && c.isMaster() && now.Sub(c.minority) < delay {
		return
	}
	c.ok = good
}

// restarted is a node's knowledge at the start of its process: the facts on its disk, and nothing about the reachability of
// peers.
func (c *cluster) restarted() {
	now := time.Now()
	c.started, c.ok = now, false
	c.authAt, c.manual = time.Time{}, time.Time{}
	for _, p := range c.peers {
		p.pinged, p.ping, p.heard, p.pfail = time.Time{}, time.Time{}, now, false
		clear(p.reports)
	}
}

// standForElection makes a replica of a failed master ask the masters for votes.
func (c *cluster) standForElection() {
	now := time.Now()
	m := c.me().master
	forced := now.Before(c.manual)
	if m < 0 || !c.peers[m].fail && !forced || !c.serves(m) {
		c.authAt = time.Time{}
		return
	}
	age := now.Sub(c.s.repl.downFrom)
	if c.s.repl.state == "connected" {
		age = now.Sub(c.s.repl.heard)
	}
	if !forced && (!c.s.repl.synced || age-c.opts.Timeout > clusterReplicaPing+clusterValidity*c.opts.Timeout) {
		return
	}
	limit := max(2*c.opts.Timeout, 2*time.Second)
	switch late := now.Sub(c.authAt); {
	case c.authAt.IsZero() || late > 2*limit:
		c.authAt, c.asked, c.votes = now, false, 0
		if !forced {
			c.authAt = now.Add(500*time.Millisecond + c.opts.Chance(500*time.Millisecond) + time.Duration(c.rank(m))*time.Second)
		}
	case late < 0 || late > limit:
	case !c.asked:
		c.epoch++
		c.authEpoch, c.asked = c.epoch, true
		h, about := c.header(), c.peers[m].config
		c.all(func(to *cluster) { to.vote(h, about, forced) })
	case c.votes >= c.size()/2+1:
		c.takeOver(c.authEpoch)
	}
}

// rank is how many replicas of the master have more data.
func (c *cluster) rank(master int) (n int) {
	for i, p := range c.peers {
		if i != c.self && p.master == master && p.offset > c.s.repl.offset {
			n++
		}
	}
	return n
}

// vote answers a replica's request for a vote.
func (c *cluster) vote(h header, config int64, forced bool) {
	c.epoch = max(c.epoch, h.epoch)
	switch {
	case !c.isMaster() || !c.serves(c.self), h.epoch < c.epoch, c.voted == c.epoch, h.master < 0,
		!c.peers[h.master].fail && !forced, time.Since(c.peers[h.master].votedAt) < 2*c.opts.Timeout:
		return
	}
	for slot, owner := range c.owners {
		if owner >= 0 && h.claims.has(slot) && c.peers[owner].config > config {
			return
		}
	}
	c.peers[h.master].votedAt, c.voted = time.Now(), h.epoch
	epoch := h.epoch
	c.s.send(c.peers[h.from].addr, 0, func(to *Server) {
		if to.cluster.asked && epoch >= to.cluster.authEpoch {
			to.cluster.votes++
		}
	})
}

// takeOver makes a replica the master of its master's slots.
func (c *cluster) takeOver(config int64) {
	old := c.me().master
	c.me().master, c.me().config = noNode, config
	for slot, owner := range c.owners {
		if int(owner) == old {
			c.own(slot, c.self)
		}
	}
	c.authAt, c.manual, c.asked = time.Time{}, time.Time{}, false
	c.s.replicaOfLocked("")
	c.changed(old)
	c.updateState()
	c.broadcast()
}
