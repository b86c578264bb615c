package kinds_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
