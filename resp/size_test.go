package resp_test

import (
	"reflect"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// What has more than four words is not kept in registers, and arrays of values take more memory with each.
func TestValueSize(t *testing.T) {
	if got, most := reflect.TypeFor[resp.Value]().Size(), 4*reflect.TypeFor[uint64]().Size(); got > most {
		t.Errorf("a Value takes %d bytes, want at most %d", got, most)
	}
}
