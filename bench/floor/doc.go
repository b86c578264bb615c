// Package floor is the least that each job can cost: requests encoded beforehand, replies looked at where they lie. It does
// without all that makes a client usable: errors end the process's measurement, nothing is bounded, nothing is recovered.
package floor
