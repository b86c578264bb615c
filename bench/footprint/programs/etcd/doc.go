//go:build !etcd

package main

func main() {}
