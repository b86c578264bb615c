module github.com/lockwire/lockwire

go 1.26
