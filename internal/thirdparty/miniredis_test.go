package thirdparty

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockwire/lockwire/conn"
)

func TestConnection(t *testing.T) {
	server := miniredis.RunT(t)
	for _, proto := range []int{2, 3} {
		pool, err := conn.Open(t.Context(), conn.Config{Addr: server.Addr(), Protocol: proto})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Do(t.Context(), "SET", "key", proto); err != nil {
			t.Errorf("RESP%d: SET: %v", proto, err)
		}
		v, err := pool.Do(t.Context(), "GET", "key")
		if got, _ := v.Int(); err != nil || got != int64(proto) {
			t.Errorf("RESP%d: GET = %v, %v, want %d", proto, got, err, proto)
		}
	}
}
