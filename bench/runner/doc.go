// Package runner runs the cases: each measurement in a separate process, on its CPUs, in rounds.
//
// A measuring process prints "ready" on its standard output after preparing itself, starts after reading a line, prints "done"
// after the measurement, and then writes its report as a line of JSON.
package runner
