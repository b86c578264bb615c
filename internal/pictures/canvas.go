package main

import (
	"fmt"
	"html"
	"strings"
)

// canvas collects the shapes of a picture. Lengths are pixels.
type canvas struct {
	title         string
	width, height int
	shapes        strings.Builder
	labels        []label
}

// label is a text with its space.
type label struct {
	text           string
	x0, y0, x1, y1 float64
}

// An anchor is the part of a text at its position.
type anchor string

const (
	left   anchor = "start"
	middle anchor = "middle"
	right  anchor = "end"
)

// The sizes of texts, and the average width of a letter in parts of the size, rather too wide than too narrow.
const (
	small  = 12.0
	normal = 14.0
	large  = 18.0

	letter = 0.56
)

// A shade is the class of a shape, which stands for a color on light and on dark ground.
type shade string

const (
	ink   shade = "ink"   // text
	faint shade = "faint" // axes and frames
	good  shade = "good"  // the lock is held
	other shade = "other" // another owner, or another client
	bad   shade = "bad"   // failures
)

const style = `
.ground { fill: #ffffff }
.ink { stroke: #1f2933; fill: #1f2933 } .faint { stroke: #9aa5b1; fill: #e8ecf0 }
.good { stroke: #1b7a46; fill: #bfe5cf } .other { stroke: #2457a6; fill: #c7d9f5 } .bad { stroke: #b3261e; fill: #f6c9c5 }
text { font-family: Helvetica, Arial, sans-serif } text[class] { stroke: none } text.faint { fill: #52606d }
text.good { fill: #14603a } text.other { fill: #1d4687 } text.bad { fill: #8f1d17 } .arrow { fill: none; stroke-width: 1.6 }
.dashed { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
.ground { fill: #161b22 }
.ink { stroke: #e6edf3; fill: #e6edf3 } .faint { stroke: #6e7681; fill: #262c36 }
.good { stroke: #56d08f; fill: #1d4a33 } .other { stroke: #7fb0ff; fill: #1e3a66 } .bad { stroke: #ff8a80; fill: #5c2320 }
text.faint { fill: #a5b0bb } text.good { fill: #7ee2ab } text.other { fill: #a9caff } text.bad { fill: #ffb0a8 }
.arrow { fill: none }
}
`

func newCanvas(title string, width, height int) *canvas {
	c := &canvas{title: title, width: width, height: height}
	c.text(20, 30, large, ink, left, title)
	return c
}

// text writes a line with its base at y.
func (c *canvas) text(x, y, size float64, s shade, a anchor, text string) {
	width := letter * size * float64(len([]rune(text)))
	x0 := x
	switch a {
	case middle:
		x0 -= width / 2
	case right:
		x0 -= width
	}
	c.labels = append(c.labels, label{text, x0, y - 0.8*size, x0 + width, y + 0.25*size})
	weight := ""
	if size == large {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(&c.shapes, `<text class="%s" x="%g" y="%g" font-size="%g" text-anchor="%s"%s>%s</text>`+"\n",
		s, x, y, size, a, weight, html.EscapeString(text))
}

// box draws a rectangle.
func (c *canvas) box(x, y, width, height float64, s shade) {
	fmt.Fprintf(&c.shapes, `<rect class="%s" x="%g" y="%g" width="%g" height="%g" rx="4"/>`+"\n", s, x, y, width, height)
}

// line draws a line, dashed or not.
func (c *canvas) line(x0, y0, x1, y1 float64, s shade, dashed bool) {
	class := string(s)
	if dashed {
		class += " dashed"
	}
	fmt.Fprintf(&c.shapes, `<line class="%s" x1="%g" y1="%g" x2="%g" y2="%g"/>`+"\n", class, x0, y0, x1, y1)
}

// arrow draws an arrow with its head at the second point.
func (c *canvas) arrow(x0, y0, x1, y1 float64, s shade) {
	fmt.Fprintf(&c.shapes, `<path class="%s arrow" marker-end="url(#%s)" d="M%g %gL%g %g"/>`+"\n", s, s, x0, y0, x1, y1)
}

// cross marks a message that does not arrive.
func (c *canvas) cross(x, y float64) {
	fmt.Fprintf(&c.shapes, `<path class="bad arrow" d="M%g %gl10 10m0 -10l-10 10"/>`+"\n", x-5, y-5)
}

// number draws a number in a circle.
func (c *canvas) number(x, y float64, n string, s shade) {
	fmt.Fprintf(&c.shapes, `<circle class="%s" cx="%g" cy="%g" r="10"/>`+"\n", s, x, y)
	c.text(x, y+4, small, ink, middle, n)
}

// svg returns the whole picture.
func (c *canvas) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		c.width, c.height, c.width, c.height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n<defs>\n", html.EscapeString(c.title), style)
	for _, s := range []shade{ink, faint, good, other, bad} {
		fmt.Fprintf(&b, `<marker id="%s" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">`+
			`<path class="%s" d="M0 1L9 5L0 9z"/></marker>`+"\n", s, s)
	}
	fmt.Fprintf(&b, "</defs>\n"+`<rect class="ground" width="%d" height="%d"/>`+"\n%s</svg>\n", c.width, c.height, c.shapes.String())
	return b.String()
}
