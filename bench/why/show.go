package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// show prints the logs, the trace and the metrics.
func show(out io.Writer, reports []report) error {
	fmt.Fprintln(out, "THE LOGS: who waits, and for whom")
	var all []span
	for _, r := range reports {
		all = append(all, r.Spans...)
		for line := range strings.Lines(r.Log) {
			fmt.Fprintf(out, "  %-10s %s", r.Process, line)
		}
	}
	fmt.Fprintln(out, "\nTHE TRACE: lock.hold of one process lies above lock.acquire of the others")
	showTrace(out, all)
	for _, r := range reports {
		fmt.Fprintf(out, "\nTHE METRICS of %s\n", r.Process)
		for _, line := range r.Metrics {
			fmt.Fprintln(out, "  "+line)
		}
	}
	return nil
}

// width is the number of columns of the trace.
const width = 40

// showTrace prints spans as bars in the order of their beginning.
func showTrace(out io.Writer, all []span) {
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b span) int { return a.Begin.Compare(b.Begin) })
	begin, end := all[0].Begin, all[0].End
	for _, s := range all {
		if s.End.After(end) {
			end = s.End
		}
	}
	column := func(at time.Time) int { return int(at.Sub(begin) * width / max(end.Sub(begin), 1)) }
	for _, s := range all {
		from, to := column(s.Begin), column(s.End)
		bar := strings.Repeat(" ", from) + strings.Repeat("=", max(to-from, 1))
		fmt.Fprintf(out, "  %-10s %-13s |%-*s| %6.1f ms  %s\n", s.Process, s.Name, width+1, bar, float64(s.End.Sub(s.Begin).Microseconds())/1000, strings.Join(s.Notes, " "))
	}
}

// nonZero returns the lines about locks, in the text format, except zeros.
func nonZero(registry *prometheus.Registry) (lines []string, err error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, err
		}
	}
	for line := range strings.SplitSeq(text.String(), "\n") {
		if strings.HasPrefix(line, "lockwire_lock") && !strings.HasSuffix(line, " 0") && !strings.Contains(line, "_bucket") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
