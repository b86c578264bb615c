package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// TestAbandonedReplyAndPush: a push with attributes arrives before a reply to skip, and is not skipped in its place.
func TestAbandonedReplyAndPush(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, limits(5*time.Second))
		defer l.close()
		srv.Intercept(onName("GET", 1, fakeredis.Run().Before("|1\r\n+a\r\n+b\r\n>1\r\n+test\r\n").Late(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Do(ctx, "GET", "key")
		wantFailure(t, err, errSent, context.DeadlineExceeded)
		want(t, l, "next", "ECHO", "next")
		want(t, l, "last", "ECHO", "last")
	})
}
