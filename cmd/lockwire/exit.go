package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// The exit codes. Codes from 64 to 77 are from sysexits.h, and the rest as in a shell.
const (
	codeFailed        = 1
	codeUsage         = 64
	codeNoServer      = 69
	codeNotAcquired   = 75
	codeLost          = 76
	codeNotPermitted  = 77
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // plus the number of the signal
)

// exitError is an error with an exit code. With err nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit code ", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if sig, ok := errors.AsType[interrupted](err); ok {
		return codeSignal + signalNumber(sig.signal)
	}
	switch {
	case errors.Is(err, lock.ErrInvalid):
		return codeUsage
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, lock.ErrNotReplicated):
		return codeNotAcquired
	case errors.Is(err, lock.ErrLost):
		return codeLost
	}
	if reply, ok := errors.AsType[resp.Error](err); ok {
		if netfail.Denied(reply) {
			return codeNotPermitted
		}
		switch reply.Class() {
		case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "READONLY":
			return codeNoServer
		}
		return codeFailed
	}
	if _, ok := errors.AsType[*conn.Error](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return codeNoServer
	}
	return codeFailed
}
