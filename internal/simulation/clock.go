package simulation

import (
	"bytes"
	"regexp"
	"strconv"
	"time"
)

// The clock of a process is wrong by a constant: time.Now is the same for all in a bubble, so the network changes the points in
// time in the process's requests, and the same points in the answers by as much in the other direction. A lease is measured by
// differences, and a clock set while the process runs changes nothing: lockwire reads the wall clock once.

var (
	sentTime  = regexp.MustCompile(`\$12\r\n[0-9]{12}\r\n`)
	heardTime = regexp.MustCompile(`(?:\+late |:)[0-9]{12}\r\n`)
)

// clockError is by how much the clock of a process is wrong at most.
const clockError = time.Minute

// shifted is text with the points in time moved by d that pattern finds: ms since 1970, at the end of a line.
func shifted(text []byte, pattern *regexp.Regexp, d time.Duration) []byte {
	if d == 0 {
		return text
	}
	return pattern.ReplaceAllFunc(text, func(found []byte) []byte {
		start := bytes.LastIndexAny(found[:len(found)-2], "\n: ") + 1
		ms, err := strconv.ParseInt(string(found[start:len(found)-2]), 10, 64)
		if err != nil || time.Since(time.UnixMilli(ms)).Abs() > 24*time.Hour {
			return found
		}
		return append(strconv.AppendInt(bytes.Clone(found[:start]), ms+d.Milliseconds(), 10), "\r\n"...)
	})
}
