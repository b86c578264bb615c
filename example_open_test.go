package lockwire_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

func ExampleOpen() {
	ctx := context.Background()
	locks, err := lockwire.Open(ctx, os.Getenv("REDIS_URL"), lockwire.Config{
		Lock: lock.Config{Lease: 10 * time.Second},
		Conn: func(cfg *conn.Config) { cfg.ClientName = "billing" },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Fenced("billing").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	fmt.Println("a token:", lease.Token() > 0)

	name, err := locks.Server().Send(ctx, resp.Cmd("CLIENT", "GETNAME"))
	if err != nil {
		log.Fatal(err)
	}
	text, _ := name.Text()
	fmt.Println(strings.HasPrefix(text, "billing,")) // the name and the id of the lock client follow
	// Output:
	// a token: true
	// true
}

func ExampleOpen_url() {
	for _, url := range []string{"", "localhost:6379", "redis://localhost:6379?read_timeout=3s"} {
		_, err := lockwire.Open(context.Background(), url, lockwire.Config{})
		fmt.Println(err)
	}
	// Output:
	// conn: url: the URL is empty: write redis://host:6379
	// conn: url: no scheme: write redis:// in front of the address, as in redis://host:6379
	// conn: url: unknown parameter "read_timeout": write timeout
}
