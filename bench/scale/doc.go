// Package scale measures a client with very many leases, and a client with very many waiters.
package scale
