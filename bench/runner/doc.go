// Package runner runs the cases: each measurement in a process of its own, on its CPUs, in rounds.
//
// A measuring process says "ready" on its standard output when it has prepared itself, starts when it reads a line, says
// "done" when it has measured, and then writes its report as a line of JSON.
package runner
