// Package locks has every lock behind a common interface, and two ways of measuring: callers with a private name each, and
// callers in contention for a common name, in a process or in several.
package locks
