package report

import "fmt"

// Kinds of rows.
const (
	ours    = "ours"
	variant = "variant" // ours, but not by default
	peer    = "peer"
	floor   = "floor"
)

// lead is the ratio by which a is better than b: above 1 a leads.
func lead(a, b float64, lower bool) (float64, bool) {
	if lower {
		a, b = b, a
	}
	return a / b, a > 0 && b > 0
}

// Lead returns how many times better lockwire is than the best of a kind, by the case's first metric.
func (c *Case) Lead(kind string) (ratio float64, ok bool) {
	if len(c.Metrics) == 0 {
		return 0, false
	}
	metric := c.Metrics[0].Name
	us, mine := c.Best(ours, metric)
	best, theirs := c.Best(kind, metric)
	if us == nil || best == nil {
		return 0, false
	}
	return lead(mine, theirs, c.Metrics[0].Lower)
}

// Line is the name of the case and how many times better lockwire is than the best peer and than the best floor.
func (c *Case) Line() string {
	return fmt.Sprintf("%s %s %s", c.Name, c.ratio(peer), c.ratio(floor))
}

func (c *Case) ratio(kind string) string {
	r, ok := c.Lead(kind)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", r)
}
