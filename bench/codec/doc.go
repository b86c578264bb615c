// Package codec measures the cost of turning a reply in memory into a value.
//
// go-redis and rueidis do not export their readers. The package calls the readers by go:linkname, so a new version of either
// may need a change here; the build or the tests then fail.
package codec
