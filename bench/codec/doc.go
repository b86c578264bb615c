// Package codec measures what it takes to make a value of a reply that lies in memory.
//
// go-redis and rueidis keep their readers to themselves. They are reached by go:linkname, so a new version of theirs may
// need a change here; the build or the tests then say so.
package codec
