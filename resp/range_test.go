package resp_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// A number is converted without loss, or rounded if it becomes a floating-point number, and else an error.
func TestAsNumbersInRange(t *testing.T) {
	inf := math.Inf(1)
	for _, tt := range []struct {
		wire string
		as   func(resp.Value) (any, error)
		want any // nil for an error
	}{
		{"+1e300|", as[float32](), nil}, {"+-1e300|", as[float32](), nil}, {",1e300|", as[float32](), nil}, {"+1e38|", as[float32](), float32(1e38)},
		{"+1e999|", as[float64](), nil}, {"+-1e999|", as[float64](), nil},
		{"(1" + strings.Repeat("0", 400) + "|", as[float64](), nil}, {"+1e-999|", as[float64](), 0.0},
		{"+inf|", as[float64](), inf}, {"+-Infinity|", as[float64](), -inf}, {",inf|", as[float64](), inf}, {",-inf|", as[float64](), -inf},
		{"+inf|", as[float32](), float32(inf)},
		{"+9007199254740993.0|", as[int64](), nil}, {"+9007199254740992.7|", as[int64](), nil}, {"+9007199254740991.7|", as[int64](), nil},
		{"+4503599627370497.25|", as[int64](), nil}, {",4503599627370497.25|", as[int64](), nil}, {"+4503599627370497.3e0|", as[int64](), nil}, {"+9.0071992547409917e15|", as[int64](), nil}, {"+1.7000000000000001e+18|", as[int64](), int64(1.7e18)},
		{"+1.23456789012345671e+17|", as[int64](), nil}, {"+123456789012345678e0|", as[int64](), nil}, {"+-123456789012345678e0|", as[int64](), nil},
		{"+7.038531e-26|", as[float32](), float32(7.038531e-26)}, {",7.038531e-26|", as[float32](), float32(7.038531e-26)},
		{"+1.0000000000000000000000000001|", as[int64](), nil}, {"+0e99999999999999999999|", as[int64](), int64(0)}, {"+1e-99999999999999999999|", as[int64](), nil},
		{"+9007199254740993|", as[int64](), int64(9007199254740993)}, {"+9007199254740992.0|", as[int64](), int64(1 << 53)},
		{"+1e+17|", as[int64](), int64(1e17)}, {"+1.2345678901234568e+17|", as[int64](), int64(123456789012345680)}, {"+-1.50e1|", as[int64](), int64(-15)},
		{"+1500e-2|", as[int64](), int64(15)}, {"+-9.223372036854775808e18|", as[int64](), int64(math.MinInt64)}, {"+9.223372036854775808e18|", as[int64](), nil},
		{"+7.00|", as[int64](), int64(7)}, {"+-0.0|", as[int64](), int64(0)}, {"+7.|", as[uint8](), uint8(7)}, {"+inf|", as[int64](), nil}, {"+nan|", as[int64](), nil},
		{"%1|+for|:9223372036854775807|", as[lasting](), nil}, {"%1|+for|:-9223372036854775808|", as[lasting](), nil},
		{"%1|+for|:9223372036854|", as[lasting](), lasting{9223372036854 * time.Millisecond}}, {"%1|+for|:9223372036855|", as[lasting](), nil},
	} {
		switch got, err := tt.as(parse(t, tt.wire)); {
		case tt.want == nil && err == nil:
			t.Errorf("%s as a %T = %v without an error", tt.wire, got, got)
		case tt.want != nil && (err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want)):
			t.Errorf("%s as a %T = %v, %v, want %v", tt.wire, got, got, err, tt.want)
		}
	}
}
