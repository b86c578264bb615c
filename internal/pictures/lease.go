package main

// lease shows a lease of 30 s in time: the holder's view and the server's.
func lease() *canvas {
	c := newCanvas("The life of a lease of 30 s", 860, 390)
	const holder, server, begin, second = 130.0, 250.0, 110.0, 13.0
	at := func(t float64) float64 { return begin + second*t }

	c.text(20, holder+18, normal, ink, left, "holder")
	c.text(20, server+18, normal, ink, left, "server")
	c.box(at(0), holder, at(49.2)-at(0), 28, good)
	c.box(at(0.8), server, at(50.8)-at(0.8), 28, good)
	c.box(at(50.8), server, 80, 28, other)
	c.text(at(1), holder+19, normal, good, left, "the lock is certainly held")
	c.text(at(2), server+19, normal, good, left, "the key exists")
	c.text(at(51.4), server+19, small, other, left, "next owner")

	for _, step := range []struct {
		t    float64
		name string
	}{{0, "acquire"}, {10, "renewal"}, {20, "renewal"}} {
		x := at(step.t)
		c.arrow(x, holder+28, x+10, server, ink)
		c.arrow(x+10, server, x+20, holder+28, faint)
		c.text(x+22, holder+74, small, ink, left, step.name)
	}
	for _, t := range []float64{30, 38, 43} {
		c.arrow(at(t), holder+28, at(t)+6, holder+70, bad)
		c.cross(at(t)+8, holder+80)
	}
	c.text(at(31.5), holder+64, small, bad, left, "no answer:")
	c.text(at(31.5), holder+78, small, bad, left, "again")
	c.box(at(20), holder-34, at(49.2)-at(20), 4, faint)
	c.text(at(20), holder-42, small, faint, left, "30 s from before the last answered request, less 1 % and 2 ms")
	c.line(at(44), holder-22, at(44), holder+28, ink, true)
	c.text(at(43.6), holder-14, small, ink, right, "StopBefore(5 s): contexts end")
	c.line(at(49.2), holder-30, at(49.2), server+50, bad, true)
	c.text(at(49.8), holder+4, small, bad, left, "ValidUntil:")
	c.text(at(49.8), holder+19, small, bad, left, "Lost, Err")
	c.text(at(48.6), server+46, small, faint, right, "the margin for clocks, drawn too wide")
	c.line(at(50.8), server, at(50.8), server+50, other, true)

	c.line(at(0), 330, at(56), 330, faint, false)
	for t := 0.0; t <= 50; t += 10 {
		c.line(at(t), 326, at(t), 334, faint, false)
		c.text(at(t), 352, small, faint, middle, []string{"0 s", "10 s", "20 s", "30 s", "40 s", "50 s"}[int(t/10)])
	}
	c.text(at(0), 376, small, faint, left, "The server is away from 30 s on. The holder gives up before the server gives the lock away.")
	return c
}
