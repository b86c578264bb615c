module github.com/lockwire/lockwire/internal/simulation

go 1.26

require (
	github.com/lockwire/lockwire v0.0.0
	github.com/yuin/gopher-lua v1.1.1
)

replace github.com/lockwire/lockwire => ../../
