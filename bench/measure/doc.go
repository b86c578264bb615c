// Package measure is what happens inside one measuring process: it runs callers for a while, and says what that took. What
// only shows from outside, the server's share, is added by whoever started the process.
//
// A measurement is a Work. It prepares itself, calls Env.Begin, measures, calls Env.End, and returns a Report. Between
// Begin and End the other side reads the server's counters, so that preparing and tidying up are not in them.
package measure
