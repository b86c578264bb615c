// Package policy has tests of the whole repository: the imports that each package may have, the functions that start goroutines, and
// what is linked into a program.
package policy
