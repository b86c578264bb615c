package main

// failover shows the same failover twice: two holders without acknowledgements, a single holder with acknowledgements.
func failover() *canvas {
	c := newCanvas("A failover, without and with acknowledgements", 860, 560)
	c.panel(60, "Acks: AcksOff", false)
	c.panel(310, "Acks: AcksAuto, the default in a cluster and under Sentinel", true)
	return c
}

// panel draws half of the picture, from y on.
func (c *canvas) panel(y float64, title string, acknowledged bool) {
	const begin, dies, promoted, renewal, end = 150.0, 330.0, 480.0, 640.0, 830.0
	master, replica, a, b := y+40, y+90, y+140, y+190
	c.text(20, y+16, normal, ink, left, title)
	for _, lane := range []struct {
		y    float64
		name string
	}{{master, "old master"}, {replica, "replica"}, {a, "process A"}, {b, "process B"}} {
		c.text(20, lane.y+16, normal, ink, left, lane.name)
		c.line(begin, lane.y+12, end, lane.y+12, faint, false)
	}
	c.box(begin, master, dies-begin, 24, faint)
	c.cross(dies, master+12)
	c.text(dies+14, master+8, small, bad, left, "dies")
	c.box(promoted, replica, end-promoted, 24, faint)
	c.text(promoted+10, replica+16, small, ink, left, "promoted: the master")

	c.arrow(begin+20, a, begin+20, master+26, ink)
	if acknowledged {
		c.arrow(begin+60, master+24, begin+70, replica+10, good)
		c.arrow(begin+80, replica+10, begin+90, master+26, good)
		c.text(begin+98, replica+4, small, good, left, "WAIT: the replica has it")
		c.box(begin+110, a, end-begin-110, 24, good)
		c.text(begin+120, a+16, small, good, left, "A holds the lock")
		c.arrow(renewal, a, renewal, replica+26, good)
		c.text(renewal+8, a-6, small, good, left, "renewal: the lock is there")
		c.arrow(promoted+40, b, promoted+40, replica+26, other)
		c.text(promoted+48, b+8, small, other, left, "Lock: taken, B waits")
		return
	}
	c.text(begin+30, replica+4, small, ink, left, "not copied yet")
	c.box(begin+40, a, renewal-begin-40, 24, good)
	c.text(begin+50, a+16, small, good, left, "A holds the lock")
	c.arrow(renewal, a, renewal, replica+26, bad)
	c.text(renewal+8, a+8, small, bad, left, "renewal: no lock, Lost")
	c.arrow(promoted+40, b, promoted+40, replica+26, other)
	c.box(promoted+50, b, end-promoted-50, 24, other)
	c.text(promoted+60, b+16, small, other, left, "B holds the lock")
	c.box(promoted+50, b+32, renewal-promoted-50, 5, bad)
	c.text(renewal+8, b+40, small, bad, left, "two have the lock")
}
