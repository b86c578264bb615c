//go:build !etcd

package locks

// Etcd is nil: this build has no etcd.
var Etcd Open
