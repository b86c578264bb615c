// Package clients has every Redis client behind a common interface, and the measured jobs: GET, SET, EVALSHA, a script by the
// client's own means, and a batch of GETs.
package clients
