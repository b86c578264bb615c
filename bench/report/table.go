package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table writes a case in Markdown: lockwire first, peers from the best to the worst, floors.
func (c *Case) Table(w io.Writer) {
	fmt.Fprintf(w, "#### %s\n\n", c.Title)
	fmt.Fprintf(w, "`%s`", c.Name)
	if c.Place != "" {
		fmt.Fprintf(w, ", %s", c.Place)
	}
	fmt.Fprintf(w, ", %d rounds on %s, other processes kept %.2f CPUs busy meanwhile\n\n",
		c.Rounds, c.When.Format("2006-01-02 15:04"), c.Foreign)
	columns := c.columns()
	heads := []string{""}
	for _, m := range columns {
		heads = append(heads, m.Name)
	}
	fmt.Fprintf(w, "| %s | lead of lockwire |\n|---|%s---:|\n", strings.Join(heads, " | "), strings.Repeat("---:|", len(columns)))
	for _, row := range c.sorted() {
		cells := []string{row.label()}
		for i, m := range columns {
			cells = append(cells, row.cell(m.Name, i == 0))
		}
		fmt.Fprintf(w, "| %s | %s |\n", strings.Join(cells, " | "), c.leadOver(row))
	}
	fmt.Fprintln(w)
	for _, row := range c.Rows {
		if n := len(row.Errors); n > 0 {
			fmt.Fprintf(w, "%s failed in %d of %d rounds: %s\n\n", row.Name, n, c.Rounds, row.Errors[0])
		}
	}
}

// columns are the metrics of a table: the first one, and those that differ between contenders.
func (c *Case) columns() []Metric {
	var columns []Metric
	for i, m := range c.Metrics {
		var cells []string
		for _, row := range c.Rows {
			if _, ok := row.Numbers[m.Name]; ok && !slices.Contains(cells, row.cell(m.Name, false)) {
				cells = append(cells, row.cell(m.Name, false))
			}
		}
		if len(cells) > 1 || len(cells) == 1 && (i == 0 || len(c.Rows) == 1) {
			columns = append(columns, m)
		}
	}
	return columns
}

func (r *Row) label() string {
	switch r.Kind {
	case ours:
		return "**" + r.Name + "**"
	case floor:
		return "*floor: " + r.Name + "*"
	}
	return r.Name
}

// cell shows a number, with its spread in the deciding column.
func (r *Row) cell(metric string, decides bool) string {
	s, ok := r.Numbers[metric]
	switch {
	case !ok:
		return "–"
	case decides:
		return spread(s)
	}
	return number(s.Median)
}

func (c *Case) leadOver(row Row) string {
	if row.Kind == ours || row.Kind == variant || len(c.Metrics) == 0 {
		return ""
	}
	_, mine := c.Best(ours, c.Metrics[0].Name)
	r, ok := lead(mine, row.Numbers[c.Metrics[0].Name].Median, c.Metrics[0].Lower)
	if !ok {
		return "–"
	}
	return fmt.Sprintf("%.2f", r)
}

// sorted are the rows in the order of a table.
func (c *Case) sorted() []Row {
	rows := slices.Clone(c.Rows)
	if len(c.Metrics) == 0 {
		return rows
	}
	order := []string{ours, variant, peer, floor}
	first := c.Metrics[0]
	slices.SortStableFunc(rows, func(a, b Row) int {
		if d := slices.Index(order, a.Kind) - slices.Index(order, b.Kind); d != 0 {
			return d
		}
		x, y := a.Numbers[first.Name].Median, b.Numbers[first.Name].Median
		if first.Lower {
			x, y = y, x
		}
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return rows
}
