package claim

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := Series{Since: began}.Next().Next()
		if s != (Series{2, began}) {
			t.Fatalf("two hand-overs make %+v", s)
		}
		time.Sleep(10 * time.Second)
		for _, c := range []struct {
			most         int
			lasts, lease time.Duration
			want         bool
		}{
			{3, time.Minute, time.Minute, true},
			{2, time.Minute, time.Minute, false}, // others have waited for two hand-overs
			{3, 10 * time.Second, time.Minute, true},
			{3, 10*time.Second - 1, time.Minute, false},
			{3, time.Minute, 30 * time.Second, true}, // a third of a lease
			{3, time.Minute, 30*time.Second - 3, false},
		} {
			if got := s.MayGoOn(c.most, c.lasts, c.lease); got != c.want {
				t.Errorf("%+v.MayGoOn(%+v) = %v", s, c, got)
			}
		}
	})
}
