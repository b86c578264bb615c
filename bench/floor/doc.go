// Package floor is the least possible cost of each job: requests encoded beforehand, replies inspected in place. It lacks
// everything that makes a client usable: errors end the process's measurement, nothing is bounded, nothing is recovered.
package floor
