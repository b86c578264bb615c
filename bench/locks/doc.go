// Package locks has every lock behind one interface, and two ways to measure it: callers with a name each, and callers, in
// one or more processes, who all want the same.
package locks
