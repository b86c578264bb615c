package conn_test

import (
	"fmt"

	"github.com/lockwire/lockwire/conn"
)

func ExampleParseURL() {
	cfg, err := conn.ParseURL("rediss://worker:s3cret@db.example/2?timeout=2s&client_name=worker-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Addr, cfg.DB, cfg.Timeout, cfg.ClientName)
	fmt.Println(cfg)

	_, err = conn.ParseURL("redis://db.example?time_out=2s")
	fmt.Println(err)
	// Output:
	// db.example:6379 2 2s worker-1
	// rediss://worker@db.example:6379?db=2
	// conn: url: unknown parameter "time_out"
}
