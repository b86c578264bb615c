package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// printJSON writes a value as one line of JSON.
func printJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// printTable writes rows under a header, in columns.
func printTable(w io.Writer, header string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(strings.Fields(header), "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
}

// brief writes a duration for people: 1h2m, 12.3s, 250ms.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// left writes a remaining time, negative if there is no end.
func left(d time.Duration) string {
	if d < 0 {
		return "no end"
	}
	return brief(d)
}
