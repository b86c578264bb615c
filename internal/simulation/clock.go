package simulation

import (
	"bytes"
	"slices"
	"strconv"
	"time"
)

// The clock of a process is wrong by a constant: time.Now is the same for all in a bubble, so the network changes the points in
// time in the process's requests, and the same points in the answers by as much in the other direction. A lease is measured by
// differences, and a clock set while the process runs changes nothing: lockwire reads the wall clock once.

// What stands in front of points in time: in requests, and in answers.
var sentTime, heardTime = []string{"$12\r\n"}, []string{"+late ", ":"}

// clockError is by how much the clock of a process is wrong at most.
const clockError = time.Minute

// shifted is text with the points in time behind a mark moved by d: ms since 1970, 12 digits at the end of a line.
func shifted(text []byte, marks []string, d time.Duration) []byte {
	const digits = 12
	for i := digits; d != 0 && i+1 < len(text); i++ {
		if text[i] != '\r' || text[i+1] != '\n' || !slices.ContainsFunc(marks, func(mark string) bool { return bytes.HasSuffix(text[:i-digits], []byte(mark)) }) {
			continue
		}
		ms, err := strconv.ParseInt(string(text[i-digits:i]), 10, 64)
		if err == nil && time.Since(time.UnixMilli(ms)).Abs() <= 24*time.Hour {
			text = bytes.Clone(text)
			strconv.AppendInt(text[:i-digits], ms+d.Milliseconds(), 10)
		}
	}
	return text
}
