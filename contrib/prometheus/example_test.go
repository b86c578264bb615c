package lockprom_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockwire/lockwire/conn"
	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
	"github.com/lockwire/lockwire/lock"
)

func ExampleNew() {
	metrics := lockprom.New(lockprom.Config{
		Group: func(name string) string { // "order:8731" is in the group "order"
			group, _, _ := strings.Cut(name, ":")
			return group
		},
	})
	prometheus.MustRegister(metrics)
	http.Handle("/metrics", promhttp.Handler())

	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	cfg.Trace = metrics.Conn()
	pool, err := conn.Open(context.Background(), cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	metrics.Pool("locks", pool.Stats)
	locks, err := lock.New(pool, lock.Config{Trace: metrics.Lock()})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
}
