//go:build !etcd

package locks

// Etcd is nil: this build is without it.
var Etcd Open
