package system

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// tick is the unit of /proc/stat, the same on all systems of Go.
const tick = 0.01

// BusySeconds is how long all CPUs together have been busy, with whatever, or kept from this machine. 0 if not known.
func BusySeconds() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	sum := 0.0
	for i, word := range strings.Fields(line) {
		// cpu, user, nice, system, idle, iowait, irq, softirq, steal; what follows is in user already
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0
		}
		sum += n * tick
	}
	return sum
}

// LoadAverage is the load of the last minute; 0 if unknown.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return n
}

// CPUModel is the name of the processor.
func CPUModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}
