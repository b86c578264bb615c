package lockotel

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// A label has few values, whatever a program's script replies.
func TestClass(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{resp.Error("NOPERM no permissions"), "NOPERM"},
		{fmt.Errorf("wrapped: %w", resp.Error("WRONGTYPE")), "WRONGTYPE"},
		{resp.Error("order-8731 is closed"), "_OTHER"},
		{resp.Error("8731 is closed"), "_OTHER"},
		{resp.Error(" no prefix"), "_OTHER"},
		{errors.New("any"), "_OTHER"},
		{context.DeadlineExceeded, "timeout"},
		{conn.ErrUncertain, "unanswered"},
	} {
		if _, got := errorOf(test.err); got != test.want {
			t.Errorf("the class of %v is %q, want %q", test.err, got, test.want)
		}
	}
}
