package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

func versionCommand() *command {
	return &command{
		name:     "version",
		args:     "[flags]",
		short:    "print the version",
		long:     `Prints the version of the command and of Go. A command built from a working tree has the version (devel).`,
		examples: []example{{"for a program", `lockwire version -o json`, 0}},
		local:    true,
		run:      version,
	}
}

func version(_ context.Context, in *invocation) error {
	text := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		text = info.Main.Version
	}
	if in.json() {
		printJSON(in.out, map[string]any{"version": text, "go": runtime.Version()})
		return nil
	}
	fmt.Fprintln(in.out, "lockwire", text, runtime.Version())
	return nil
}
