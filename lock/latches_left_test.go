package lock_test

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func TestLatches(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for key, lasts := range map[string]int{
			"redisson_unlock_latch:{jo*}:2": 3000, "redisson_unlock_latch:{jo*}:1": 2000, // of the name jo*
			"redisson_unlock_latch:{job}:1": 1000, "redisson_unlock_latch:{jo*}": 1000, "jo*": 1000,
		} {
			w.srv.Do("SET", key, "1", "PX", strconv.Itoa(lasts))
		}
		want := []lock.Latch{
			{Key: "redisson_unlock_latch:{jo*}:1", Remaining: 2 * time.Second},
			{Key: "redisson_unlock_latch:{jo*}:2", Remaining: 3 * time.Second},
		}
		for _, name := range []string{"jo*", "{jo*}"} {
			if found, err := c.Latches(t.Context(), name); err != nil || !reflect.DeepEqual(found, want) {
				t.Errorf("Latches(%s) = %v, %v, want %v", name, found, err, want)
			}
		}
		if found, err := c.Latches(t.Context(), "free"); err != nil || len(found) != 0 {
			t.Errorf("Latches() without any = %v, %v", found, err)
		}
		_, err := c.Latches(t.Context(), "a{b")
		wantErr(t, "Latches of a bad name", err, lock.ErrInvalid)
	})
}

// The latch of a release is deleted soon after the answer.
func TestLatchOfARelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		mustUnlock(t, lease)
		found, err := c.Latches(t.Context(), "job")
		if err != nil || len(found) != 1 || found[0].Remaining > 20*time.Second {
			t.Errorf("Latches() just after a release = %v, %v", found, err)
		}
		w.sleep(time.Second)
		if found, err := c.Latches(t.Context(), "job"); err != nil || len(found) != 0 {
			t.Errorf("Latches() a second after a release = %v, %v", found, err)
		}
	})
}
