// Package system is the machine for a measurement: processes on chosen CPUs, servers, and their use of resources.
package system
