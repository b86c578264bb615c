package lockprom

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
		{resp.Error("order-8731 is closed"), "other"},
		{resp.Error("8731 is closed"), "other"},
		{resp.Error(" no prefix"), "other"},
		{errors.New("any"), "other"},
		{context.DeadlineExceeded, "timeout"},
		{conn.ErrUncertain, "unanswered"},
	} {
		if got := class(test.err); got != test.want {
			t.Errorf("the class of %v is %q, want %q", test.err, got, test.want)
		}
	}
}
