// Bare is a program without a Redis client: what net and crypto/tls alone take.
package main

import (
	"crypto/tls"
	"net"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	probe.Program{Open: func(addr string) (func() error, error) {
		nc, err := net.Dial("tcp", addr)
		if addr == "" { // never: only linked
			nc = tls.Client(nc, nil)
		}
		return func() error {
			if _, err := nc.Write([]byte("PING\r\n")); err != nil {
				return err
			}
			_, err := nc.Read(make([]byte, 16))
			return err
		}, err
	}}.Main()
}
