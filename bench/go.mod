module github.com/lockwire/lockwire/bench

go 1.26

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/lockwire/lockwire v0.0.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace github.com/lockwire/lockwire => ../
