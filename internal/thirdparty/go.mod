module github.com/lockwire/lockwire/internal/thirdparty

go 1.26

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/lockwire/lockwire v0.0.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace github.com/lockwire/lockwire => ../../
