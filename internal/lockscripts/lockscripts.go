// Package lockscripts has the scripts of package lock as Go functions for a [fakeredis.Server], which has no Lua.
//
// A test of package lock runs each function and its script side by side, from the same states, on a fake and a real server.
package lockscripts

import (
	"errors"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// models has the function of each script, by the kind and the operation in its first line.
var models = map[string]func(*fakeredis.Call) any{
	"Reentrant lock, acquire":     modelAcquire,
	"Reentrant lock, release":     modelRelease,
	"Reentrant lock, handover":    modelHandover,
	"Reentrant lock, single":      modelSingle,
	"Reentrant lock, keep":        modelKeep,
	"Reentrant lock, undo":        modelUndo,
	"Reentrant lock, renew":       modelRenew,
	"Reentrant lock, force":       modelForce,
	"Reentrant lock, info":        modelInfo,
	"Fenced lock, acquire":        modelFencedAcquire,
	"Fenced lock, info":           modelFencedInfo,
	"Fenced lock, handover":       modelFencedHandover,
	"Non-reentrant lock, acquire": modelNonReentrantAcquire,
	"Read lock, acquire":          modelReadAcquire,
	"Read lock, release":          modelReadRelease,
	"Read lock, undo":             modelReadUndo,
	"Read lock, renew":            modelReadRenew,
	"Write lock, acquire":         modelWriteAcquire,
	"Write lock, release":         modelWriteRelease,
	"Write lock, undo":            modelWriteUndo,
	"Write lock, downgrade":       modelDowngrade,
	"Read-write lock, force":      modelReadWriteForce,
	"Read-write lock, info":       modelReadWriteInfo,
	"Plain lock, acquire":         modelPlainAcquire,
	"Plain lock, release":         modelPlainRelease,
	"Plain lock, keep":            modelPlainKeep,
	"Plain lock, undo":            modelPlainUndo,
	"Plain lock, renew":           modelPlainRenew,
	"Plain lock, force":           modelPlainForce,
	"Plain lock, info":            modelPlainInfo,
	"Faster multi lock, acquire":  modelFasterMultiAcquire,
	"Faster multi lock, release":  modelFasterMultiRelease,
	"Faster multi lock, undo":     modelFasterMultiUndo,
	"Faster multi lock, renew":    modelFasterMultiRenew,
	"Faster multi lock, force":    modelFasterMultiForce,
	"Faster multi lock, quit":     modelFasterMultiQuit,
	"Faster multi lock, info":     modelFasterMultiInfo,
	"Semaphore, acquire":          modelSemaphoreAcquire,
	"Semaphore, undo":             modelSemaphoreUndo,
	"Semaphore, info":             modelSemaphoreInfo,
	"Semaphore, set":              modelSemaphoreSet,
	"Semaphore, add":              modelSemaphoreAdd,
	"Semaphore, drain":            modelSemaphoreDrain,
	"Permit semaphore, acquire":   modelPermitsAcquire,
	"Permit semaphore, release":   modelPermitsRelease,
	"Permit semaphore, end":       modelPermitsEnd,
	"Permit semaphore, undo":      modelPermitsUndo,
	"Permit semaphore, renew":     modelPermitsRenew,
	"Permit semaphore, force":     modelPermitsForce,
	"Permit semaphore, info":      modelPermitsInfo,
	"Permit semaphore, add":       modelPermitsAdd,
	"Permit semaphore, lease":     modelPermitsLease,
	"Permit semaphore, give":      modelPermitsGive,
	"Countdown latch, acquire":    modelCountdownAcquire,
	"Countdown latch, set":        modelCountdownSet,
	"Countdown latch, down":       modelCountdownDown,
	"Countdown latch, delete":     modelCountdownDelete,
	"Fair lock, acquire":          modelFairAcquire,
	"Fair lock, release":          modelFairRelease,
	"Fair lock, undo":             modelFairUndo,
	"Fair lock, force":            modelFairForce,
	"Fair lock, info":             modelFairInfo,
	"Fair lock, pass":             modelFairPass,
	"All kinds, quit":             modelQuit,
	"All kinds, publish":          func(*fakeredis.Call) any { return int64(1) },
	"Any kind, shape":             modelShape,
	"Leader, publish":             modelLeaderPublish,
	"Leader, withdraw":            modelLeaderWithdraw,
}

// Title is the kind and the operation of a script, from the first line of its source.
func Title(source string) string {
	title, _, _ := strings.Cut(strings.TrimPrefix(source, "-- "), ":")
	return title
}

// Interpret returns the function of the script with a source, for [fakeredis.Server.Interpret].
func Interpret(source string) (func(*fakeredis.Call) any, error) {
	if model := models[Title(source)]; model != nil {
		return model, nil
	}
	return nil, errors.New("there is no Go function for this script")
}
