// Package clients has every Redis client behind one interface, and the jobs that are measured with it: GET, SET, EVALSHA, a
// script by the client's own means, and a batch of GETs.
package clients
