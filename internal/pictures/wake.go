package main

// wake shows the waiter woken by a release: in the same process, in a different process, and in Java.
func wake() *canvas {
	c := newCanvas("Who wakes whom", 860, 520)
	c.box(20, 60, 220, 120, faint)
	c.text(34, 82, normal, ink, left, "Go process A")
	c.box(34, 94, 84, 32, good)
	c.text(76, 115, normal, good, middle, "holder")
	c.box(150, 94, 76, 32, other)
	c.text(188, 115, normal, other, middle, "caller 2")
	c.arrow(118, 110, 148, 110, good)
	c.number(133, 140, "1", good)

	c.box(20, 210, 220, 120, faint)
	c.text(34, 232, normal, ink, left, "Go process B")
	c.box(34, 244, 84, 32, other)
	c.text(76, 265, normal, other, middle, "front")
	c.box(150, 244, 76, 32, other)
	c.text(188, 265, normal, other, middle, "caller 2")
	c.text(34, 310, small, faint, left, "only the front asks the server")

	c.box(340, 60, 200, 270, faint)
	c.text(440, 82, normal, ink, middle, "Redis")
	c.box(356, 100, 168, 32, good)
	c.text(440, 121, normal, good, middle, "lock: owner, holds")
	c.box(356, 170, 168, 60, other)
	c.text(440, 194, normal, other, middle, "line: B, Java, C")
	c.text(440, 216, small, other, middle, "one place each")
	c.box(356, 270, 168, 32, other)
	c.text(440, 291, normal, other, middle, "channels")

	c.box(640, 60, 200, 270, faint)
	c.text(740, 82, normal, ink, middle, "Java, Redisson")
	c.box(660, 170, 160, 32, other)
	c.text(740, 191, normal, other, middle, "threads that wait")
	c.box(660, 100, 160, 32, good)
	c.text(740, 121, normal, good, middle, "thread that holds")

	c.arrow(240, 160, 338, 160, ink)
	c.number(289, 160, "2", faint)
	c.arrow(340, 270, 242, 250, other)
	c.number(291, 260, "3", other)
	c.arrow(240, 310, 338, 310, ink)
	c.number(289, 310, "4", faint)
	c.arrow(540, 200, 638, 190, other)
	c.number(589, 195, "5", other)
	c.arrow(640, 116, 542, 116, ink)
	c.number(591, 116, "6", faint)
	for i, line := range []string{
		"Unlock hands the lock to the next caller of the process, without a request: 16 times or 25 ms in a row.",
		"Unlock runs one script, which frees the lock and takes the first place out of the line.",
		"A message to this process alone: its turn, 100 ms in which no other process of the line takes the lock.",
		"The front acquires, and its process goes to the end of the line if more callers wait.",
		"Java's turn: a message on the lock's own channel wakes Redisson's waiters.",
		"Redisson's unlock publishes on the same channel: it wakes Java's waiters and the fronts in Go.",
	} {
		y := 362 + 26*float64(i)
		c.number(34, y, string(rune('1'+i)), faint)
		c.text(54, y+4, small, ink, left, line)
	}
	return c
}
