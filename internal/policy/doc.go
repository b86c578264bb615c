// Package policy has tests of the whole repository: the allowed imports of each package, the functions that start goroutines,
// the circles of files in a package, and the packages linked into a program.
package policy
