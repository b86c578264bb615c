package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
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
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	_ = tw.Flush()
}

// output is the standard output. After an error it takes no more.
type output struct {
	file io.Writer
	err  error
}

func (o *output) Write(b []byte) (n int, err error) {
	if o.err == nil {
		n, o.err = o.file.Write(b)
	}
	return n, o.err
}

// printable returns a text in which no character can change the terminal or the columns of a table: names of locks may have any.
func printable(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !unprintable(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// brief writes a duration for people: 1h2m, 12.3s, 250ms.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		text := d.Round(time.Second).String()
		if whole, ok := strings.CutSuffix(text, "m0s"); ok {
			return whole + "m"
		}
		return text
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
