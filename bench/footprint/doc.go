// Package footprint builds a small program for each library, in a module of its own as a user would have it, and measures
// what the library adds: to the binary, to the list of modules, and to the process.
package footprint
