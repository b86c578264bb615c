// Package measure runs inside a measuring process: it runs callers for a while, and reports the cost. The parent process adds
// numbers visible only from outside, the server's share.
//
// A measurement is a Work. It prepares itself, calls Env.Begin, measures, calls Env.End, and returns a Report. At Begin and End
// the parent reads the server's counters, so preparing and tidying up do not count.
package measure
