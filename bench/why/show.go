package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/lockwire/lockwire/lock"
)

// show prints what the server says of the lock, the logs, the trace and the metrics.
func show(out io.Writer, seen lock.Inspection, reports []report) {
	fmt.Fprintln(out, "THE SERVER, while others wait (lockwire status shows the same): who holds the lock, and is he alive")
	showHolders(out, seen)
	fmt.Fprintln(out, "\nTHE LOGS: who waits, and for whom")
	var all []span
	for _, r := range reports {
		all = append(all, r.Spans...)
		for line := range strings.Lines(r.Log) {
			fmt.Fprintf(out, "  %-10s %s", r.Process, line)
		}
	}
	fmt.Fprintln(out, "\nTHE TRACE: since when the holder has the lock, and lock.acquire of the others below it")
	showTrace(out, all)
	fmt.Fprintln(out, "\nTHE DASHBOARD, while web-2 and web-3 wait")
	showMetrics(out, reports, func(r report) map[string]string { return r.Waiting })
	fmt.Fprintln(out, "\nTHE DASHBOARD, at the end")
	showMetrics(out, reports, func(r report) map[string]string { return r.Metrics })
}

// showHolders prints the holders of a lock and the processes behind them.
func showHolders(out io.Writer, seen lock.Inspection) {
	for _, h := range seen.Info.Holders {
		fmt.Fprintf(out, "  %s is held by %s, whose lease has %v left", seen.Name, h.Owner, h.Remaining.Round(time.Second))
		for _, c := range seen.Clients {
			switch {
			case !strings.HasPrefix(h.Owner, c.ID+":"):
			case c.Connected:
				fmt.Fprintf(out, ": the process %s at %s, alive", c.Name, c.Addr)
			default:
				fmt.Fprint(out, ": not connected")
			}
		}
		fmt.Fprintf(out, "; %d clients listen for the release\n", seen.Listening)
	}
}

// showMetrics prints a row for each series with a column for each process.
func showMetrics(out io.Writer, reports []report, of func(report) map[string]string) {
	names := map[string]bool{}
	fmt.Fprintf(out, "  %-90s", "")
	for _, r := range reports {
		fmt.Fprintf(out, " %10s", r.Process)
		for name := range of(r) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(out, "\n  %-90s", name)
		for _, r := range reports {
			fmt.Fprintf(out, " %10s", cmp.Or(of(r)[name], "."))
		}
	}
	fmt.Fprintln(out)
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

// nonZero returns the series about locks and their values, except zeros. Of histograms it returns the counts.
func nonZero(registry *prometheus.Registry) map[string]string {
	families, err := registry.Gather()
	if err != nil {
		return map[string]string{err.Error(): ""}
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return map[string]string{err.Error(): ""}
		}
	}
	series := map[string]string{}
	for line := range strings.SplitSeq(text.String(), "\n") {
		name, value, _ := strings.Cut(line, " ")
		base, _, _ := strings.Cut(name, "{")
		if strings.HasPrefix(base, "lockwire_lock") && value != "0" && !strings.HasSuffix(base, "_bucket") && !strings.HasSuffix(base, "_sum") {
			series[strings.Replace(name, `group="",`, "", 1)] = value
		}
	}
	return series
}
