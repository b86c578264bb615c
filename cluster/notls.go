//go:build lockwire_notls

package cluster

func refusedByTLS(error) bool { return false }
