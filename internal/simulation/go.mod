module github.com/lockwire/lockwire/internal/simulation

go 1.26

require (
	github.com/lockwire/lockwire v0.0.0
	github.com/tetratelabs/wazero v1.12.0
	github.com/yuin/gopher-lua v1.1.1
)

require golang.org/x/sys v0.44.0 // indirect

replace github.com/lockwire/lockwire => ../../
