// Package system is what a measurement needs of the machine: processes on chosen CPUs, servers, and what they used.
package system
