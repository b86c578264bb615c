// Package scale measures one client with very many leases, and one with very many waiters.
package scale
