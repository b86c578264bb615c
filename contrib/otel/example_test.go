package lockotel_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/lockwire/lockwire/conn"
	lockotel "github.com/lockwire/lockwire/contrib/otel"
	"github.com/lockwire/lockwire/lock"
)

func ExampleNew() {
	ctx := context.Background()
	telemetry, err := lockotel.New(lockotel.Config{
		Group: func(name string) string { // "order:8731" is in the group "order"
			group, _, _ := strings.Cut(name, ":")
			return group
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	cfg.Trace = telemetry.Conn()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stop, err := telemetry.Pool("locks", pool.Stats)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	locks, err := lock.New(pool, lock.Config{Trace: telemetry.Lock()})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Reentrant("order:8731").Do(ctx, func(context.Context) error {
		fmt.Println("in a span lock.hold")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
