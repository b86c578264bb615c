// Package footprint builds a small program for each library, in a module like a user's, and measures the library's addition to
// the binary, to the list of modules, and to the process.
package footprint
