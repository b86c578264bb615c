// Package policy has tests of the whole repository: the allowed imports of each package, the functions that start goroutines,
// and the packages linked into a program.
package policy
