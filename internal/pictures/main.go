// Pictures draws the pictures of the documentation into a folder, internal/pictures by default.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pictures are all pictures, by the names of their files.
var pictures = map[string]func() *canvas{
	"lease.svg":    lease,
	"wake.svg":     wake,
	"failover.svg": failover,
}

func main() {
	dir := "internal/pictures"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for name, draw := range pictures {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(draw().svg()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}
